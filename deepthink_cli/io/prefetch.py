"""Threads on both sides of the work: one prepares what comes next, one puts away what is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 0.3  # seconds that whoever stops early waits for a thread to end
_NAME = "deepthink helper"


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

    thread = _started(prepare)
    try:
        while not isinstance(item := waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        _empty(waiting)  # a thread that waits to hand over an item sees that it is to stop
        thread.join(_PATIENCE)


@contextmanager
def behind(use: Callable[[T], None], most: int = 1) -> Iterator[Callable[[T], None]]:
    """Give a function that hands items to a thread, which uses them in order; at most `most` wait.

    What using raises is raised here: when the next item is handed over, or at the end, which waits for
    the last item. After an error here, what waits is dropped.
    """
    waiting: Queue[T | _End] = Queue(most)
    failed: list[BaseException] = []

    def work() -> None:
        while not isinstance(item := waiting.get(), _End):
            try:
                if not failed:
                    use(item)
            except BaseException as error:
                failed.append(error)

    def hand_over(item: T) -> None:
        if failed:
            raise failed[0]
        waiting.put(item)

    thread = _started(work)
    try:
        yield hand_over
        waiting.put(_End())
        thread.join()
    except BaseException:
        _empty(waiting)
        waiting.put(_End())
        thread.join(_PATIENCE)
        raise
    if failed:
        raise failed[0]


def still_working() -> bool:
    """Whether a thread that was stopped early is still at its last item."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def _started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=_NAME, daemon=True)
    thread.start()
    return thread


def _empty(waiting: Queue[T]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except Empty:
        pass
