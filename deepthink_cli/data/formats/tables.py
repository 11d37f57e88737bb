"""CSV, TSV and Parquet."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator
from itertools import chain
from threading import Lock
from typing import Any

from deepthink_cli.data.formats.lines import bounded_line, check_decoded, check_length, shortened
from deepthink_cli.data.source import Row, RowSource, opened, seekable
from deepthink_cli.errors import InputError, Problem, option

COMMA, SEMICOLON, TAB = ",", ";", "\t"
_QUOTED = re.compile(r'"[^"]*("|$)')
_csv_limit = Lock()


def csv_rows(source: RowSource) -> Iterator[Row | InputError]:
    """Rows of comma-separated cells, or of semicolon-separated cells if the header has semicolons and no comma.

    Raises InputError for a header with both, outside of quotation marks, and for one with tabs and neither.
    """
    return _rows(source, COMMA)


def tsv_rows(source: RowSource) -> Iterator[Row | InputError]:
    """Rows of tab-separated cells. Raises InputError for a header with commas or semicolons and no tab."""
    return _rows(source, TAB)


def _rows(source: RowSource, expected: str) -> Iterator[Row | InputError]:
    kind = "TSV" if expected == TAB else "CSV"
    with opened(source) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        lines = _Lines(text, source.name)
        start = _start(lines)
        delimiter = _delimiter(start[-1] if start else "", expected, f"{source.name}:{len(start)}")
        table = csv.reader(chain(start, lines), delimiter=delimiter, strict=True)
        header: list[str] | None = None
        first_line = 1
        try:
            for cells in _records(table):
                where, first_line = f"{source.name}:{first_line}", table.line_num + 1
                lines.size = 0
                try:
                    _check_cells(cells, where)
                except InputError as error:
                    if header is None:
                        raise
                    yield error
                    continue
                if not cells:
                    continue
                if header is None:
                    header = _header(cells, where)
                    continue
                if len(cells) != len(header):
                    counts = f"{len(cells)} cells under {len(header)} columns"
                    yield InputError(Problem(f"{counts}; quote cells that hold {delimiter!r}", place=where))
                    continue
                yield Row(dict(zip(header, cells, strict=True)), where)
        except csv.Error as error:
            raise InputError(f"{source.name}:{first_line}: not {kind} ({error})") from error


class _Lines(Iterator[str]):
    """The lines of a table; raises InputError where those since `size` was set to 0 are longer than a row may be."""

    def __init__(self, text: io.TextIOWrapper, name: str) -> None:
        self.text, self.name = text, name
        self.number = self.size = 0

    def __next__(self) -> str:
        line = bounded_line(self.text)
        if not line:
            raise StopIteration
        self.number, self.size = self.number + 1, self.size + len(line)
        check_length(self.size, f"{self.name}:{self.number}")
        return line


def _start(lines: Iterator[str]) -> list[str]:
    """The lines up to the first that is not empty, where the header begins."""
    start = []
    for line in lines:
        start.append(line)
        if line.strip("\r\n"):
            break
    return start


def _delimiter(header: str, expected: str, where: str) -> str:
    """The character between the cells, judged by the header's first line outside of quotation marks."""
    unquoted = _QUOTED.sub("", header)
    commas, semicolons, tabs = COMMA in unquoted, SEMICOLON in unquoted, TAB in unquoted
    if expected == TAB and not tabs and (commas or semicolons):
        raise InputError(
            f"{where}: no tab in the header, but {header.strip()!r:.60}; for CSV, use {option('format')} csv"
        )
    if expected == COMMA and commas and semicolons:
        raise InputError(
            f"{where}: commas and semicolons in the header {header.strip()!r:.60}; put the column names that hold one "
            "in quotation marks"
        )
    if expected == COMMA and tabs and not commas and not semicolons:
        raise InputError(f"{where}: tabs in the header, and no comma; for TSV, use {option('format')} tsv")
    return SEMICOLON if expected == COMMA and semicolons else expected


def _records(table: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows of a table with cells of any length; the process-wide limit of Python's reader is restored."""
    while True:
        with _csv_limit:
            before = csv.field_size_limit(sys.maxsize)
            try:
                cells = next(table, None)
            finally:
                csv.field_size_limit(before)
        if cells is None:
            return
        yield cells


def _check_cells(cells: list[str], where: str) -> None:
    # Decoding errors are kept as surrogates until the row is known, so that the error can name it.
    check_decoded("".join(cells), where)
    if any("\0" in cell for cell in cells):
        raise InputError(f"{where}: holds a NUL byte; save the file as UTF-8")


def _header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if "" in names or len(set(names)) != len(names):
        raise InputError(f"{where}: the first row must name every column once, found {names}")
    return names


_BATCH = 256  # rows


def parquet_rows(source: RowSource) -> Iterator[Row | InputError]:
    """The rows of a Parquet file, batch by batch."""
    import pyarrow
    import pyarrow.parquet

    with seekable(source) as stream:
        try:
            table = pyarrow.parquet.ParquetFile(stream)
            names = table.schema_arrow.names
            if len(set(names)) != len(names):
                raise InputError(f"{source.name}: must name every column once, found {names}")
            first = 1
            for batch in table.iter_batches(batch_size=_BATCH):
                yield from _batch_rows(batch, source.name, first)
                first += len(batch)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{source.name}: not a Parquet file ({shortened(str(error))})") from error


def _batch_rows(batch: Any, name: str, first: int) -> Iterator[Row | InputError]:
    """The rows of a batch; if one cannot be read, the rows are read one by one."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            yield InputError(f"{name}:{first}: cannot be read ({shortened(str(error))})")
            return
        for place in range(len(batch)):
            yield from _batch_rows(batch.slice(place, 1), name, first + place)
        return
    for number, fields in enumerate(rows, start=first):
        yield Row(fields, f"{name}:{number}")
