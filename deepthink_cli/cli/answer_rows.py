"""The output of the rows of answers: a file, whose suffix names its format, or stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

from deepthink_cli.io.tables import check_suffix, separated
from deepthink_cli.io.text import json_line
from deepthink_cli.options import OUTPUT, Flag

if TYPE_CHECKING:
    from deepthink_cli.data.examples import Skipped
    from deepthink_cli.io.tables import Row, Write
    from deepthink_cli.prediction.rows import OutputRows, RowCounts
    from deepthink_cli.scoring.prediction import Prediction

Output = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Output file: .jsonl, .csv, .tsv or .parquet. Default: JSON Lines on stdout.",
        "FILE",
        short="-o",
        variable=False,
    ),
]
OutputFormat = Annotated[
    Literal["jsonl", "csv", "tsv"],
    Flag(OUTPUT, "Format of rows on stdout.", variable=False),
]


def check_output(output: Path | None, read: list[str | Path], resume: bool) -> None:
    """Raise InputError for an output of unknown format, and for an output that would overwrite a file that is read."""
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.prediction.files import partial_of

    if output is not None:
        for path in (output, partial_of(output)) if resume else (output,):
            check_apart(path, read)
        check_suffix(output)


def print_rows(parts: Iterable[list[Prediction | Skipped]], form: OutputRows, output_format: str) -> RowCounts:
    """Print the rows on stdout as they come; returns their counts."""
    from deepthink_cli.prediction.rows import RowWriter

    write: Write = partial(write_lines, out=sys.stdout)
    if form.table:
        write = separated(sys.stdout, form.columns, "," if output_format == "csv" else "\t")

    def flushed(rows: Iterable[Row]) -> None:
        write(rows)
        sys.stdout.flush()

    return RowWriter(form, flushed).write_all(parts)


def write_lines(rows: Iterable[Row], out: TextIO) -> None:
    """Write JSON lines, each at once: an interrupt comes between two lines."""
    for row in rows:
        out.write(json_line(row))
        out.flush()
