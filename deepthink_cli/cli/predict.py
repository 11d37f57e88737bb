"""`deepthink predict`: label inputs with a memory."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from deepthink_cli.calibration.registry import calibrations
from deepthink_cli.cli.console import note
from deepthink_cli.cli.data_options import RowFormat
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.method_options import Calibrate, EnsembleFiles, IterationChoice, Score
from deepthink_cli.cli.options import OUTPUT, CommonArguments, ModelArguments, for_memory
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.show import Show
from deepthink_cli.data.rows import RowSource
from deepthink_cli.errors import Problems
from deepthink_cli.io.text import json_line

if TYPE_CHECKING:
    from deepthink_cli.options import ScoreName
    from deepthink_cli.prediction import Prediction
    from deepthink_cli.workflows.inputs import CheckedRows
    from deepthink_cli.workflows.memories import OpenedMemory

PIPE_BUF = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe writes atomically; POSIX guarantees 512
MemoryFile = Annotated[Path, typer.Argument(metavar="MEMORY", help="A file written by deepthink think.")]
Inputs = Annotated[
    str,
    typer.Argument(
        metavar="INPUTS",
        help="Rows to label: JSON Lines, JSON, CSV, TSV, Parquet or one text a line (.txt), also .gz or .zst; - for "
        "stdin. A row may have its own candidates: [...].",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Output file. Default: stdout."),
]


@grouped
def predict(
    context: typer.Context,
    memory: MemoryFile,
    inputs: Inputs,
    output: Output = None,
    iteration: IterationChoice = "last",
    calibrate: Calibrate = None,
    ensemble: EnsembleFiles = None,
    score: Score = "sum",
    row_format: RowFormat = None,
    *,
    model: ModelArguments,
    common: Annotated[CommonArguments, Without("json")],
) -> None:
    """Label inputs with a memory: one JSON line for each, in order.

    The model, the template and the labels come from the memory.
    """
    from deepthink_cli.prediction import CHUNK
    from deepthink_cli.workflows.memories import model_options, open_memory
    from deepthink_cli.workflows.outputs import check_apart
    from deepthink_cli.workflows.predict import predict_file

    if output is not None and str(output) == "-":
        output = None
    model, problems, files = for_memory(context, model), Problems(), ensemble or []
    source = RowSource(inputs, row_format)
    options = problems.result(model.checked)
    names = problems.result(lambda: calibrations(calibrate)) or ()
    if output is not None:
        read = read_by(memory, inputs, *files, model=model.model, adapter=model.adapter, config=common.config)
        problems.result(lambda: check_apart(output, read))
    opened: OpenedMemory | None = problems.result(lambda: open_memory(memory, iteration))
    others, checked = _checked(opened, files, iteration, source, names, problems)
    problems.raise_any()
    assert opened is not None
    if output is not None:
        used = model_options(opened, options)
        check_apart(output, read_by(model=used.model, adapter=used.adapter))
    # Lines typed at a terminal are scored one by one; other inputs in batches.
    chunk = 1 if inputs == "-" and sys.stdin.isatty() else CHUNK
    with Show(common, bar=not sys.stdout.isatty()) as tell:
        parts = predict_file(
            opened,
            source,
            options=options,
            checked=checked,
            chunk=chunk,
            calibrate=names,
            ensemble=others,
            score=score,
            tell=tell,
        )
        count = _write(parts, output, len(opened.iterations), names, score)
    if output is not None:
        note(f"wrote {output} ({count} rows)", common.quiet)


def _checked(
    opened: OpenedMemory | None,
    files: Sequence[Path],
    iteration: str,
    inputs: RowSource,
    calibrate: Sequence[str],
    problems: Problems,
) -> tuple[Sequence[OpenedMemory], CheckedRows | None]:
    """The other memories and the checked rows, if the memory could be opened; mistakes are added to `problems`."""
    from deepthink_cli.workflows.calibrations import check_supported
    from deepthink_cli.workflows.ensemble import open_ensemble
    from deepthink_cli.workflows.inputs import check_rows

    if opened is None:
        return (), None
    others = problems.result(lambda: open_ensemble(opened, files, iteration))
    checked = check_rows(opened.provenance.demonstrations, inputs, problems)
    problems.result(lambda: check_supported(calibrate, opened, checked))
    return others, checked


def _write(
    parts: Iterable[list[Prediction]],
    output: Path | None,
    iterations: int,
    calibrate: Sequence[str],
    score: ScoreName,
) -> int:
    """Write predictions as they come, to a file or to stdout; returns the number of rows."""
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.io.prefetch import behind

    with nullcontext(sys.stdout) if output is None else writing(output) as out:
        rows = _Rows(out, iterations, calibrate, score)
        with behind(rows.write) as write:
            for part in parts:
                write(part)
    return rows.count


class _Rows:
    """Writes predictions as JSON lines, in blocks that a pipe writes atomically: an interrupt never splits a line."""

    def __init__(self, out: TextIO, iterations: int, calibrate: Sequence[str], score: ScoreName) -> None:
        self.out, self.iterations, self.calibrate, self.score, self.count = out, iterations, calibrate, score, 0

    def write(self, predictions: list[Prediction]) -> None:
        from deepthink_cli.workflows.inputs import output_row

        block, size = "", 0
        for prediction in predictions:
            index, several = self.count // self.iterations, self.iterations > 1
            row = output_row(index, prediction, several, self.calibrate, self.score)
            line = json_line(row)
            length = len(line.encode(errors="backslashreplace"))
            if size + length > PIPE_BUF:
                self._write_out(block)
                block, size = "", 0
            block, size = block + line, size + length
            self.count += 1
        self._write_out(block)

    def _write_out(self, block: str) -> None:
        # The stream's own buffer is larger than a block, so that a flush is one system call.
        self.out.write(block)
        self.out.flush()
