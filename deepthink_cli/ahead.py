"""Work done ahead: a thread prepares what comes next while the last is being used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 0.3  # seconds that a reader who stops early waits for the thread to end
_NAME = "deepthink ahead"


@dataclass(frozen=True)
class _End:
    error: BaseException | None = None


def ahead(items: Iterator[T], most: int = 1) -> Iterator[T]:
    """Yield the items, in order, while a thread prepares the next ones; at most `most` wait to be taken.

    What preparing raises is raised here, in its place. When the reader stops early, so does the thread,
    after the item it is at.
    """
    waiting: Queue[T | _End] = Queue(most)
    stopped = threading.Event()

    def prepare() -> None:
        end = _End()
        try:
            for item in items:
                waiting.put(item)
                if stopped.is_set():
                    return
        except BaseException as error:
            end = _End(error)
        waiting.put(end)

    thread = threading.Thread(target=prepare, name=_NAME, daemon=True)
    thread.start()
    try:
        while not isinstance(item := waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        _empty(waiting)  # a thread that waits to hand over an item sees that it is to stop
        thread.join(_PATIENCE)


def still_working() -> bool:
    """Whether a thread that was stopped early is still at its last item."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def _empty(waiting: Queue[T]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except Empty:
        pass
