"""The one thread that owns the model: requests that wait together are scored together, unless one is to be alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Full, Queue
from threading import Thread
from typing import Generic, TypeVar

from deepthink_cli.io.prefetch import OURS

Row = TypeVar("Row")
Answer = TypeVar("Answer")


class Overloaded(Exception):
    """As many requests wait as may; the client may try again later."""


@dataclass(frozen=True)
class _Request(Generic[Row, Answer]):
    """Rows, and their future answers; `alone` if they are answered with no other request's."""

    rows: Sequence[Row]
    alone: bool
    future: Future[list[Answer]]


class Batches(Generic[Row, Answer]):
    """Answers requests by one function, at most `most` together; at most `waiting` requests wait."""

    def __init__(self, answer: Callable[[Sequence[Row]], list[Answer]], most: int, waiting: int) -> None:
        self._answer, self._most = answer, most
        self._queue: Queue[_Request[Row, Answer]] = Queue(waiting)
        Thread(target=self._run, name=f"{OURS} labelling", daemon=True).start()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._queue.qsize()

    def submit(self, rows: Sequence[Row], alone: bool) -> Future[list[Answer]]:
        """The future answers to a request; unless it is `alone`, it shares a call with others. Raises Overloaded."""
        future: Future[list[Answer]] = Future()
        try:
            self._queue.put_nowait(_Request(rows, alone, future))
        except Full as error:
            raise Overloaded from error
        return future

    def _run(self) -> None:
        following: _Request[Row, Answer] | None = None
        while True:
            together, following = [following or self._queue.get()], None
            while not together[0].alone and len(together) < self._most and not self._queue.empty():
                following = self._queue.get()
                if following.alone:
                    break
                together.append(following)
                following = None
            self._score(together)

    def _score(self, together: Sequence[_Request[Row, Answer]]) -> None:
        running = [each for each in together if each.future.set_running_or_notify_cancel()]
        try:
            answers = iter(self._answer([row for each in running for row in each.rows]))
            for each in running:
                each.future.set_result([next(answers) for _ in each.rows])
        except Exception as error:
            for each in running:
                if not each.future.done():
                    each.future.set_exception(error)
