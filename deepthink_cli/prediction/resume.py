"""The file from which an interrupted labelling continues: `OUTPUT.partial`.

Its first line says what is labelled, with what; every other line is an output row. Rows are appended a chunk at a
time, and synced to disk. A labelling that continues removes what follows the last whole chunk, so that its chunks are
those of a labelling that was never interrupted, and so are its batches and their rounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from deepthink_cli.data.examples import Query
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.appended import append, cut, refusals
from deepthink_cli.io.text import json_line
from deepthink_cli.scoring.pipeline import CHUNK
from deepthink_cli.scoring.prediction import Prediction

_MARK = "deepthink predict"
_LONGEST = 2**20  # bytes of the first line


class PartialLabels:
    """The rows written so far; `done` is the number of inputs that they label. Created by `open_partial`."""

    def __init__(self, output: Path, start: int, iterations: Sequence[int], done: int) -> None:
        self.output, self.path, self.start = output, partial_of(output), start
        self.iterations, self.done = iterations, done

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, in order."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            yield from map(json.loads, file)

    def chunks(self) -> Iterator[list[Prediction]]:
        """The predictions of each chunk with their scores, as a calibration that is estimated from rows needs them.

        Scores per token are not written; the scores are in their place, because labels do not depend on them.
        """
        chunk: list[Prediction] = []
        number = 0
        for row in self.rows():
            if row["index"] // CHUNK != number:
                yield chunk
                chunk, number = [], row["index"] // CHUNK
            if "error" not in row:
                query, scores = Query("", tuple(row["scores"])), row["scores"]
                iteration = row.get("iteration", self.iterations[-1])
                chunk.append(Prediction(query, iteration, "", 0.0, scores, "", False, scores))
        yield chunk

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows of a chunk and sync them to disk."""
        with _refusals(self.output):
            append(self.path, map(json_line, rows))

    def remove(self) -> None:
        """Remove the file: the output is complete."""
        self.path.unlink(missing_ok=True)


def partial_of(output: Path) -> Path:
    """The file from which the labelling of `output` continues."""
    return Path(f"{output}.partial")


@contextmanager
def open_partial(
    output: Path, identity: Mapping[str, Any], total: int, iterations: Sequence[int]
) -> Iterator[PartialLabels]:
    """Open the rows of an earlier call, or begin a new file, which no other process may do until the block ends.

    `identity` is what the rows depend on, by the name that messages use. Raises InputError, naming what is different,
    for a file that was begun with another identity, and for one that is something else.
    """
    path, head = partial_of(output), json_line({"made by": _MARK, **identity}).encode()
    with _locked(output, path):
        with _refusals(output):
            if not path.exists() or _is_torn(path, head):
                path.write_bytes(head)
            _check(path, json.loads(head))
            done = _cut(path, len(head), total, len(iterations))
        yield PartialLabels(output, len(head), iterations, done)


def _is_torn(path: Path, head: bytes) -> bool:
    """Whether the first line of the file was not written to its end."""
    with open(path, "rb") as file:
        first = file.readline(_LONGEST)
    return not first.endswith(b"\n") and head.startswith(first)


def _check(path: Path, identity: Mapping[str, Any]) -> None:
    with open(path, "rb") as file:
        first = file.readline(_LONGEST)
    try:
        begun = json.loads(first)
    except ValueError:
        begun = None
    if not isinstance(begun, dict) or begun.get("made by") != _MARK:
        raise InputError(f"{path}: not the rows of a labelling; move it, or name another output")
    different = _different(begun, identity)
    if different:
        raise InputError(
            f"{path}: was begun with another {', another '.join(different)}; give the same to continue it, or remove "
            "it to start again"
        )


def _different(begun: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """The names of what two labellings depend on and differ in."""
    before, now = begun.get("options") or {}, identity["options"]
    options = [option(name) for name in {**before, **now} if before.get(name) != now.get(name)]
    others = [name for name in {**begun, **identity} if begun.get(name) != identity.get(name)]
    return [name for each in others for name in (options if each == "options" else [each])]


def _cut(path: Path, start: int, total: int, iterations: int) -> int:
    """Remove what follows the last whole chunk; returns the number of inputs that have all their rows.

    A file with the rows of all inputs is whole.
    """
    done = kept = lines = 0
    end = place = start
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            row = _row(line)
            if row is None or row.get("index") != done:
                break
            place, lines = place + len(line), lines + 1
            if "error" in row or lines == iterations:
                done, lines = done + 1, 0
                if done % CHUNK == 0 or done == total:
                    kept, end = done, place
    cut(path, end)
    return kept


def _row(line: bytes) -> dict[str, Any] | None:
    """The row in a line; None if it was not written to its end."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and line.endswith(b"\n") else None


@contextmanager
def _locked(output: Path, path: Path) -> Iterator[None]:
    lock = FileLock(f"{path}.lock", blocking=False, fallback_to_soft=False)
    with _refusals(output):
        try:
            lock.acquire()
        except Timeout as error:
            raise InputError.of(
                "output", output, "another deepthink predict --resume writes there; wait for it"
            ) from error
    try:
        yield
    finally:
        if not path.exists():
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _refusals(output: Path) -> AbstractContextManager[None]:
    return refusals(Problem.of("output", output), "the same command continues it")
