"""Append-only files of rows, from which interrupted work continues: a run's rows, the labels of `predict --resume`.

A row is a line of JSON that is never changed. A row of a run has a key, which says what it is the result of; a row of a
labelling has the number of its input, and the first line of the file, its header, says what all rows were made with.
Rows are synced to disk as they are written. Whoever continues the work holds a lock, cuts off what a killed process has
left of a last line, and does what has no row yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deepthink_cli.errors import DeepThinkError, Problem

_BLOCK = 65536  # bytes read at a time


def append(path: Path, lines: Iterable[str]) -> None:
    """Write lines at the end of a file, and sync them to disk."""
    with open(path, "ab") as file:
        file.writelines(line.encode() for line in lines)
        file.flush()
        os.fsync(file.fileno())


def cut(path: Path, end: int) -> None:
    """Remove what follows the first `end` bytes of a file."""
    with open(path, "r+b") as file:
        if end < os.fstat(file.fileno()).st_size:
            file.truncate(end)
            os.fsync(file.fileno())


def whole_lines(path: Path) -> int:
    """The bytes of a file up to the end of its last whole line."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
    return 0


@contextmanager
def refusals(where: Problem, hint: str) -> Iterator[None]:
    """Raise errors of the file system as a DeepThinkError, which says how the work continues."""
    try:
        yield
    except OSError as error:
        raise DeepThinkError(where.because(f"cannot be written: {error.strerror or error}; {hint}")) from error
