"""Threads before the work: in order, bounded, and stopped with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from deepthink_cli.io.prefetch import ahead, still_working


def numbers(taken: list[int], count: int = 100) -> Iterator[int]:
    for n in range(count):
        taken.append(n)
        yield n


def test_items_come_in_order() -> None:
    assert list(ahead(numbers([]))) == list(range(100))


def test_the_next_item_is_prepared_while_one_is_used() -> None:
    taken: list[int] = []
    items = ahead(numbers(taken))
    assert next(items) == 0
    time.sleep(0.1)
    assert len(taken) == 3  # the one in use, one that waits, one at the door
    items.close()


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="the second"):
        next(items)


def test_the_thread_stops_with_its_reader() -> None:
    taken: list[int] = []
    items = ahead(numbers(taken))
    next(items)
    items.close()
    before = len(taken)
    time.sleep(0.1)
    assert len(taken) == before
    assert not still_working()


def test_a_thread_that_cannot_stop_is_not_waited_for() -> None:
    begun, release = threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        begun.set()
        release.wait()
        yield 2

    items = ahead(slow())
    next(items)
    begun.wait()
    started = time.monotonic()
    items.close()
    assert time.monotonic() - started < 2
    assert still_working()
    release.set()
    while still_working():
        time.sleep(0.01)
