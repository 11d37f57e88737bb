"""Write the labels of `predict` to a file, in one call, or in several calls that continue from `OUTPUT.partial`.

The first line of `OUTPUT.partial` identifies the inputs and the labelling; every other line is an output row with
all scores. Rows are appended a chunk at a time, and synced to disk. A later call first removes the rows after the last
whole chunk. So the chunks, the batches and their rounding are the same as without an interruption.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from deepthink_cli.artifact.metadata import versions
from deepthink_cli.artifact.opening import model_options
from deepthink_cli.data.examples import Query
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Note, Tell
from deepthink_cli.io.atomic import append, cut, refusals
from deepthink_cli.io.tables import writing_rows
from deepthink_cli.io.text import json_line
from deepthink_cli.prediction.predict import Labelling
from deepthink_cli.prediction.rows import ABOUT, OutputRows, RowCounts, RowWriter
from deepthink_cli.scoring.pipeline import CHUNK, Part
from deepthink_cli.scoring.prediction import Prediction, Scores, prediction_of

_MARK = "deepthink predict"
_LONGEST = 2**20  # the most bytes of the first line


@dataclass(frozen=True)
class PartialLabels:
    """The rows written so far, which label `done` inputs, and begin at byte `start`. Created by `open_partial`."""

    output: Path
    start: int
    iterations: Sequence[int]
    done: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, in order."""
        with open(partial_of(self.output), "rb") as file:
            file.seek(self.start)
            yield from map(json.loads, file)

    def chunks(self) -> Iterator[list[Prediction]]:
        """The predictions of each chunk by their scores, without corrections.

        The file has no scores per token, on which labels do not depend; the scores stand in their place.
        """
        chunk: list[Prediction] = []
        number = 0
        for row in self.rows():
            if row["index"] // CHUNK != number:
                yield chunk
                chunk, number = [], row["index"] // CHUNK
            if "error" not in row:
                values = tuple(row["scores"].values())
                iteration = row.get("iteration", self.iterations[-1])
                chunk.append(prediction_of(Query("", tuple(row["scores"])), iteration, Scores(values, values)))
        yield chunk

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows of a chunk and sync them to disk."""
        with _refusals(self.output):
            append(partial_of(self.output), map(json_line, rows))


def partial_of(output: Path) -> Path:
    """The file with the rows of an interrupted labelling that writes `output`."""
    return Path(f"{output}.partial")


@contextmanager
def open_partial(
    output: Path, identity: Mapping[str, Any], total: int, iterations: Sequence[int]
) -> Iterator[PartialLabels]:
    """Open the rows of an earlier call, or begin a new file; no other process may open it until the block ends.

    `identity` holds all that the rows depend on, by the names that messages use. Raises InputError, naming the
    differences, for a file that was begun with another identity, and for a file without rows of a labelling.
    """
    path, head = partial_of(output), json_line({"made by": _MARK, **identity}).encode()
    with _locked(output, path):
        with _refusals(output):
            first = b""
            if path.exists():
                with open(path, "rb") as file:
                    first = file.readline(_LONGEST)
            if not first.endswith(b"\n") and head.startswith(first):  # it was not written to its end
                path.write_bytes(head)
            else:
                _check(path, first, json.loads(head))
            done = _cut(path, len(head), total, len(iterations))
        yield PartialLabels(output, len(head), iterations, done)


def _check(path: Path, first: bytes, identity: Mapping[str, Any]) -> None:
    """Raise InputError unless the first line of a file has this identity."""
    try:
        begun = json.loads(first)
    except ValueError:
        begun = None
    if not isinstance(begun, dict) or begun.get("made by") != _MARK:
        raise InputError(f"{path}: not the rows of a labelling; move it, or name another output")
    before, now = begun.pop("options", None) or {}, identity["options"]
    different = [name for name in {**begun, **identity} if name != "options" and begun.get(name) != identity.get(name)]
    different += [option(name) for name in {**before, **now} if before.get(name) != now.get(name)]
    if different:
        raise InputError(
            f"{path}: was begun with another {', another '.join(different)}; give the same to continue it, or remove "
            "it to start again"
        )


def _cut(path: Path, start: int, total: int, iterations: int) -> int:
    """Remove the rows after the last whole chunk; returns the number of inputs that have all their rows.

    The rows of all inputs need no whole last chunk.
    """
    done = kept = lines = 0
    end = place = start
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:  # it was not written to its end
                break
            if not line.endswith(b"\n") or not isinstance(row, dict) or row.get("index") != done:
                break
            place, lines = place + len(line), lines + 1
            if "error" in row or lines == iterations:
                done, lines = done + 1, 0
                if done % CHUNK == 0 or done == total:
                    kept, end = done, place
    cut(path, end)
    return kept


@contextmanager
def _locked(output: Path, path: Path) -> Iterator[None]:
    lock = FileLock(f"{path}.lock", blocking=False, fallback_to_soft=False)
    with _refusals(output):
        try:
            lock.acquire()
        except Timeout as error:
            raise InputError.of(
                "output", output, f"another deepthink predict with {option('resume')} writes there; wait for it"
            ) from error
    try:
        yield
    finally:
        if not path.exists():
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _refusals(output: Path) -> AbstractContextManager[None]:
    return refusals(Problem.of("output", output), "; the same command continues it")


class Predict(Protocol):
    """Yields the predictions of the rows after the first `start`, as `Labelling` does."""

    def __call__(self, *, start: int = 0, before: Iterable[Sequence[Prediction]] = ()) -> Iterator[Part]: ...


def write_labels(predict: Predict, output: Path, form: OutputRows, tell: Tell, again: bool = True) -> RowCounts:
    """Write all labels to a file, which appears when it is complete; at Ctrl-C, tell that the labels are lost.

    `again` says whether the inputs can be read again, so that `--resume` would keep the labels.
    """
    counts = RowCounts()

    def lost() -> str:
        advice = f"; {option('resume')} keeps them" if again else ""
        return f"{output}: not written; the labels of {counts.rows:,} rows are lost{advice}" if counts.rows else ""

    with _telling_at_ctrl_c(tell, lost), writing_rows(output, form.columns, about=ABOUT) as write:
        return RowWriter(form, write, counts=counts).write_all(predict())


def resume_labels(
    predict: Predict, output: Path, form: OutputRows, identity: dict[str, Any], total: int, tell: Tell
) -> RowCounts:
    """Write labels as `write_labels` does, after the rows of an earlier call that was interrupted (`open_partial`).

    `predict` takes `start` and `before` as a `Labelling` does.
    """
    counts, kept, path = RowCounts(), RowCounts(), partial_of(output)

    def rest() -> str:
        return f"{path}: {kept.rows:,} of {total:,} rows are kept; the same command continues"

    with open_partial(output, identity, total, form.iterations) as partial, _telling_at_ctrl_c(tell, rest):
        kept.rows = partial.done
        if partial.done:
            tell(Note(f"continuing {path}: {partial.done:,} of {total:,} rows are there"))
        if partial.done < total:
            rest_of_rows = predict(start=partial.done, before=partial.chunks())
            RowWriter(form.with_scores(), partial.append, partial.done, kept).write_all(rest_of_rows)
        with writing_rows(output, form.columns, about=ABOUT) as write:
            for row in partial.rows():
                counts.add([row])
                write([form.without_scores(row)])
        path.unlink()
    return counts


@contextmanager
def _telling_at_ctrl_c(tell: Tell, words: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if said := words():
            tell(Note(said))
        raise


def identity_of(labelling: Labelling, form: OutputRows) -> dict[str, Any]:
    """All that the bytes of a file of labels depend on: options by their fields, the rest by names that users know."""
    scorer, inputs = labelling.scorer, labelling.source
    return {
        "memory": scorer.memory.sha256,
        "name of the inputs": inputs.path,
        "content of the inputs": labelling.checked and labelling.checked.sha256,
        "options": {
            "ensemble": [other.sha256 for other in scorer.others],
            "iteration": list(form.iterations),
            "format": inputs.row_format,
            "map": dict(inputs.renamed) or None,
            "no_header": None if inputs.header else True,
            "no_quotes": None if inputs.quotes else True,
            **model_options(scorer.memory, labelling.options).recorded(),
            "calibrate": list(form.calibrate),
            **scorer.scoring.recorded,
            **form.options.model_dump(mode="json"),
            "on_error": "skip" if form.skip else "stop",
        },
        **{f"version of {name}": number for name, number in versions().items()},
    }


def check_resume(output: Path | None, inputs: str) -> None:
    """Raise InputError unless a labelling can be continued: from a file of inputs, into a file."""
    if output is None:
        raise InputError.of("resume", None, f"only with {option('output')} FILE; name the output")
    source = RowSource(inputs)
    if source.read_once:
        raise InputError.of("resume", None, f"{source.name} cannot be read again; give a file of inputs")
    if partial_of(output).is_dir():
        raise InputError(f"{partial_of(output)}: is a directory; move it, or name another output")
