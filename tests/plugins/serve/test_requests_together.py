"""Requests that wait together are answered together, each with its own answers."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import pytest

from deepthink_cli.plugins.serve.batches import Batches, Overloaded


class Held:
    """Squares numbers once it is released; `calls` are the rows of each call."""

    def __init__(self) -> None:
        self.entered, self.released, self.calls = Event(), Event(), list[list[int]]()

    def __call__(self, rows: Sequence[int]) -> list[int]:
        self.calls.append(list(rows))
        self.entered.set()
        self.released.wait(10)
        if -1 in rows:
            raise ValueError("minus one")
        return [row * row for row in rows]


def test_waiting_requests_share_a_call_unless_one_is_to_be_alone() -> None:
    held = Held()
    batches = Batches(held, most=2, waiting=8)
    requests = [[1], [2], [3], [4], [5, 6], [7, 7], [8], [9]]
    first = batches.submit(requests[0], alone=False)
    assert held.entered.wait(10)
    others = [batches.submit(each, alone=len(each) > 1 or each == [8]) for each in requests[1:]]
    held.released.set()
    assert [each.result(10) for each in (first, *others)] == [[row * row for row in rows] for rows in requests]
    assert held.calls == [[1], [2, 3], [4], [5, 6], [7, 7], [8], [9]]


def test_a_request_too_many_is_refused_and_those_that_wait_are_answered() -> None:
    held = Held()
    batches = Batches(held, most=4, waiting=1)
    first = batches.submit([1], alone=False)
    assert held.entered.wait(10)
    second = batches.submit([2], alone=False)
    with pytest.raises(Overloaded):
        batches.submit([3], alone=False)
    held.released.set()
    assert [first.result(10), second.result(10)] == [[1], [4]]


def test_an_error_ends_its_requests_and_not_the_thread() -> None:
    held = Held()
    held.released.set()
    batches = Batches(held, most=4, waiting=1)
    with pytest.raises(ValueError, match="minus one"):
        batches.submit([-1], alone=False).result(10)
    assert batches.submit([3], alone=False).result(10) == [9]
