"""Prefetch inputs in background threads, in order and with bounded memory."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final = object()
_PATIENCE = 0.3  # seconds to wait for the thread if the caller stops early
_AT_ONCE = 0.05  # seconds in which an item follows another one at once
OURS = "deepthink"  # begins the names of threads that may be at work when the process ends
_NAME = f"{OURS} prefetch"


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, in order, while a thread prepares the next two.

    An error raised while an item is prepared is raised here, in place of that item. If the caller stops early, the
    thread stops after its current item.
    """
    executor = ThreadPoolExecutor(1, _NAME)
    prepared: deque[Future[Any]] = deque(executor.submit(next, items, _END) for _ in range(2))
    try:
        while (item := prepared.popleft().result()) is not _END:
            prepared.append(executor.submit(next, items, _END))
            yield item
    finally:  # drop the queued items, and wait a moment for the current one
        executor.shutdown(wait=False, cancel_futures=True)
        if not wait([future for future in prepared if not future.cancelled()], _PATIENCE).not_done:
            executor.shutdown()


def chunks(items: Iterator[T], size: int, flush: bool = False) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; with `flush`, a list also ends where no item follows at once.

    With `flush`, a thread waits for items, and ends with the process, whatever it waits for. An error of `items` is
    raised here, after the items before it.
    """
    if not flush:
        yield from iter(lambda: list(islice(items, size)), [])
        return
    arrived: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(size)

    def read() -> None:
        try:
            for item in items:
                arrived.put((item,))
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        part, item = list[T](), arrived.get()
        while isinstance(item, tuple):
            part.append(item[0])
            if len(part) == size:
                break
            try:
                item = arrived.get(timeout=_AT_ONCE)
            except queue.Empty:
                break
        if part:
            yield part
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return


def still_working(names: str = _NAME) -> bool:
    """Whether a thread whose name begins with `names` is at work; an exit waits for it, or ends it in native code."""
    return any(thread.name.startswith(names) for thread in threading.enumerate())
