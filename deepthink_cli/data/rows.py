"""Rows of a table, read one at a time from a file or from standard input, in any of the formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from deepthink_cli.data.formats.columns import parquet_rows
from deepthink_cli.data.formats.json import json_rows
from deepthink_cli.data.formats.lines import FIELD, text_rows
from deepthink_cli.data.formats.tables import table_rows
from deepthink_cli.data.source import FormatName, Row, RowSource, check_path
from deepthink_cli.errors import InputError, Problems

_READERS: dict[FormatName, Callable[[RowSource], Iterator[Row | InputError]]] = {
    "csv": table_rows,
    "tsv": table_rows,
    "jsonl": json_rows,
    "json": json_rows,
    "parquet": parquet_rows,
}


def read_rows(source: str | RowSource, problems: Problems | None = None) -> Iterator[Row]:
    """Yield the rows of `source`: a path, `-` for standard input, or a `RowSource` that names the format.

    The format follows the suffix: .jsonl, .ndjson or .json (one object a line, or one array of objects), .csv, .tsv,
    .parquet, or .txt (one text a line); a path without a suffix and standard input are read as JSON Lines. `.gz` and
    `.zst` after it are decompressed. Raises InputError with `file:line` at the first row that cannot be read (with
    `problems`, collects it there and continues), and for a source that is missing or holds no row.
    """
    for row in rows_or_errors(source):
        if isinstance(row, Row):
            yield row
        elif problems is None:
            raise row
        else:
            problems.add(*row.problems)


def rows_or_errors(source: str | RowSource, text_field: str = FIELD) -> Iterator[Row | InputError]:
    """Yield rows as `read_rows` does, and the error of a bad row in its place."""
    source, empty = RowSource.of(source), True
    if source.is_text:
        yield Row({text_field: source.path}, source.name)
        return
    check_path(source)
    name = source.row_format
    reader = partial(text_rows, field=text_field) if name == "txt" else _READERS[name]
    for row in reader(source):
        empty = False
        yield row
    if empty:
        raise InputError(f"{source.name}: no rows; give at least one")


def check_rereadable(source: str | RowSource) -> None:
    """Raise InputError for standard input, a pipe or a device, whose rows can be read only once."""
    source = RowSource.of(source)
    if source.read_once:
        raise InputError(f"LABELLED {source.path}: evaluation reads its rows twice; give a file")
