"""Threads before and behind the work: in order, bounded, and stopped with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from deepthink_cli.io.prefetch import ahead, behind, still_working


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


def test_what_is_done_is_put_away_in_order_by_another_thread() -> None:
    used: list[tuple[int, int]] = []
    with behind(lambda item: used.append((item, threading.get_ident()))) as put_away:
        for n in range(50):
            put_away(n)
    assert [item for item, _ in used] == list(range(50))
    assert threading.get_ident() not in {thread for _, thread in used}


def test_nothing_is_put_away_after_an_error() -> None:
    used: list[int] = []
    handed = threading.Event()

    def broken(item: int) -> None:
        handed.wait()
        used.append(item)
        raise OSError("the first")

    def two_handed_over() -> None:
        with behind(broken) as put_away:
            put_away(1)
            put_away(2)
            handed.set()

    with pytest.raises(OSError, match="the first"):
        two_handed_over()
    assert used == [1]


def test_handing_over_waits_where_too_much_waits() -> None:
    release, used = threading.Event(), list[int]()

    def slow(item: int) -> None:
        release.wait()
        used.append(item)

    with behind(slow) as put_away:
        put_away(1)
        put_away(2)
        threading.Timer(0.1, release.set).start()
        put_away(3)
        assert used[:1] == [1]
    assert used == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 5])
def test_an_error_in_putting_away_is_raised_to_who_hands_over(count: int) -> None:
    def broken(item: int) -> None:
        raise BrokenPipeError

    def handed_over() -> None:
        with behind(broken) as put_away:
            for n in range(count):
                put_away(n)

    with pytest.raises(BrokenPipeError):
        handed_over()


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
