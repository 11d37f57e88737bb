"""A pipe of any number of inputs: constant memory, order kept, and every ending whole and quiet."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO

import pytest
from conftest import write_rows
from helpers.forks import Child, Forks

from deepthink_cli.cli.main import run

LABELS = ("good", "bad")
pytestmark = pytest.mark.soak  # minutes of rows; in the suite streams are closed and interrupted in tests/cli


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A memory of the built-in model, with two labels."""
    folder = tmp_path_factory.mktemp("load")
    demos = write_rows(folder / "demos.jsonl", [{"text": "warm", "label": "good"}, {"text": "dull", "label": "bad"}])
    path = str(folder / "mem.safetensors")
    assert run(["think", str(demos), "-T", "1", "-o", path, "-q"]) == 0
    return path


def inputs(numbers: Iterable[int]) -> Iterator[bytes]:
    for number in numbers:
        yield b'{"n": %d, "text": "film %d"}\n' % (number, number % 977)


@dataclass
class Predicting:
    """A running `predict`, and the end of the pipe that it writes to."""

    child: Child
    stdout: BinaryIO


@contextmanager
def predicting(forks: Forks, memory: str, rows: Iterable[bytes], errors: Path) -> Iterator[Predicting]:
    """`predict` with rows in its stdin as it takes them; killed at the end, if it has not ended."""

    def feed() -> None:
        with suppress(BrokenPipeError, ValueError), os.fdopen(feeding, "wb") as stdin:
            for row in rows:
                stdin.write(row)

    (inward, feeding), (reading, outward) = os.pipe(), os.pipe()
    with errors.open("wb") as file:
        child = forks.start(["predict", memory, "-", "-q"], stdin=inward, stdout=outward, stderr=file.fileno())
    os.close(inward)
    os.close(outward)
    feeder = Thread(target=feed, daemon=True)
    feeder.start()
    with os.fdopen(reading, "rb") as stdout:
        try:
            yield Predicting(child, stdout)
        finally:
            child.kill()
            feeder.join(5)


def check(line: bytes, number: int) -> None:
    """A line of output is the row of input `number`, whole."""
    row = json.loads(line)
    assert (row["index"], row["input"]["n"]) == (number, number)
    assert row["label"] in LABELS
    assert tuple(row["scores"]) == LABELS
    assert line.endswith(b"\n")


def peak(forks: Forks, memory: str, rows: int, errors: Path) -> int:
    """Label `rows` inputs through a pipe, checking each as it comes; returns the most memory that was held, in KiB."""
    with predicting(forks, memory, inputs(range(rows)), errors) as started:
        check(started.stdout.readline(), 0)
        found, began = 1, time.monotonic()
        for line in started.stdout:
            check(line, found)
            found += 1
        print(f"\n{rows:,} inputs at {rows / (time.monotonic() - began):,.0f} a second")
        code = started.child.wait(60)
    assert (found, code, errors.read_bytes()) == (rows, 0, b"")
    return started.child.peak


def test_memory_does_not_grow_with_the_inputs_and_their_order_is_kept(
    forks: Forks, memory: str, tmp_path: Path
) -> None:
    few, many = 5_000, 50_000
    small, large = peak(forks, memory, few, tmp_path / "few"), peak(forks, memory, many, tmp_path / "many")
    print(f"peak at {few:,} inputs {small / 1024:.1f} MiB, at {many:,} {large / 1024:.1f} MiB")
    assert large <= 1.1 * small
