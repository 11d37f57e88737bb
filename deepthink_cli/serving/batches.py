"""The one thread that owns the model: requests of one row that wait together are scored together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Full, Queue
from threading import Thread
from typing import Generic, TypeVar

Row = TypeVar("Row")
Answer = TypeVar("Answer")


class Overloaded(Exception):
    """As many requests wait as may; the client may try again later."""


class Batches(Generic[Row, Answer]):
    """Answers requests by one function: a request of several rows alone, those of one row at most `rows` together.

    At most `waiting` requests wait.
    """

    def __init__(self, answer: Callable[[Sequence[Row]], list[Answer]], rows: int, waiting: int) -> None:
        self._answer, self._rows = answer, rows
        self._queue: Queue[tuple[Sequence[Row], Future[list[Answer]]] | None] = Queue(waiting)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._queue.qsize()

    def submit(self, rows: Sequence[Row]) -> Future[list[Answer]]:
        """The future answers to a request; raises Overloaded."""
        future: Future[list[Answer]] = Future()
        try:
            self._queue.put_nowait((rows, future))
        except Full as error:
            raise Overloaded from error
        return future

    def close(self) -> None:
        """Answer the requests that wait, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        following = self._queue.get()
        while following is not None:
            together = [following]
            following = None
            while len(together[0][0]) == 1 and len(together) < self._rows and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    return self._score(together)
                if len(following[0]) != 1:
                    break
                together.append(following)
                following = None
            self._score(together)
            following = following or self._queue.get()

    def _score(self, together: Sequence[tuple[Sequence[Row], Future[list[Answer]]]]) -> None:
        running = [each for each in together if each[1].set_running_or_notify_cancel()]
        try:
            answers = iter(self._answer([row for rows, _ in running for row in rows]))
            for rows, future in running:
                future.set_result([next(answers) for _ in rows])
        except Exception as error:
            for _, future in running:
                if not future.done():
                    future.set_exception(error)
