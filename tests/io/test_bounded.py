"""Work that does not end, or takes all memory, is found out without its being done here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from deepthink_cli.io.processes import exceeds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no copies of processes")


def endless() -> None:
    while True:
        pass


def refusing() -> None:
    raise ValueError("no")


def leaving() -> None:
    sys.exit(5)


def test_work_that_does_not_end_exceeds_its_time() -> None:
    assert exceeds(endless, seconds=1) == "1 seconds"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_work_that_takes_all_memory_exceeds_it() -> None:
    assert exceeds(lambda: "x" * 10**10) == "1 GiB of memory"


@pytest.mark.parametrize("work", [lambda: "x" * 10**6, refusing, leaving])
def test_work_that_ends_in_whatever_way_exceeds_nothing(work: Callable[[], object]) -> None:
    assert exceeds(work) is None


def test_the_work_is_not_done_in_this_process() -> None:
    done = list[int]()
    assert exceeds(lambda: done.append(1)) is None
    assert done == []
