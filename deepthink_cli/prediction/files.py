"""Write the labels of `predict` to a file, at once or over several calls that continue each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from deepthink_cli.artifact.files import versions
from deepthink_cli.artifact.opening import OpenedMemory, model_options
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.data.examples import Skipped
from deepthink_cli.data.rows import RowSource
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell
from deepthink_cli.io.prefetch import behind
from deepthink_cli.io.tables import writing_rows
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.resume import open_partial, partial_of
from deepthink_cli.prediction.rows import ABOUT, Numbered, OutputRows, RowCounts
from deepthink_cli.scoring.inputs import CheckedRows
from deepthink_cli.scoring.prediction import Prediction


class Predict(Protocol):
    """Yields the predictions of the rows after the first `start`, as `predict_file` does."""

    def __call__(
        self, *, start: int = 0, before: Iterable[Sequence[Prediction]] = ()
    ) -> Iterator[list[Prediction | Skipped]]: ...


def write_labels(predict: Predict, output: Path, form: OutputRows) -> RowCounts:
    """Write all labels to a file, which appears when it is complete."""
    counts, numbered = RowCounts(), Numbered(form)
    with writing_rows(output, form.columns, about=ABOUT) as write:

        def put(part: Sequence[Prediction | Skipped]) -> None:
            rows = numbered(part)
            counts.add(rows)
            write(rows)

        with behind(put) as hand_over:
            for part in predict():
                hand_over(part)
    return counts


def resume_labels(
    predict: Predict, output: Path, form: OutputRows, identity: dict[str, Any], total: int, tell: Tell
) -> RowCounts:
    """Like `write_labels`, but continues from the rows of an earlier call that was interrupted (`open_partial`)."""
    counts = RowCounts()
    with open_partial(output, identity, total, form.iterations) as partial:
        if partial.done:
            tell(Note(f"continuing {partial.path}: {partial.done:,} of {total:,} rows are there"))
        if partial.done < total:
            numbered = Numbered(form, partial.done)
            before = partial.chunks() if from_rows(form.calibrate) else ()

            def append(part: Sequence[Prediction | Skipped]) -> None:
                partial.append(numbered(part))

            with behind(append) as hand_over:
                for part in predict(start=partial.done, before=before):
                    hand_over(part)
        with writing_rows(output, form.columns, about=ABOUT) as write:
            for row in partial.rows():
                counts.add([row])
                write([row])
        partial.remove()
    return counts


def identity_of(
    memory: OpenedMemory,
    ensemble: Sequence[OpenedMemory],
    inputs: RowSource,
    checked: CheckedRows,
    options: ModelOptions | None,
    form: OutputRows,
) -> dict[str, Any]:
    """What the bytes of the labels depend on, by the name that users know; the options by their fields."""
    model = model_options(memory, options).model_dump(mode="json", exclude={"offline", "trust_remote_code"})
    return {
        "memory": memory.sha256,
        "name of the inputs": inputs.path,
        "content of the inputs": checked.digest.sha256,
        "options": {
            "ensemble": [other.sha256 for other in ensemble],
            "iteration": list(form.iterations),
            "format": inputs.row_format,
            **model,
            "calibrate": list(form.calibrate),
            "score": form.score,
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
