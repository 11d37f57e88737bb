"""CSV and TSV."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator
from itertools import chain
from threading import Lock

from deepthink_cli.data.formats.lines import bounded_line, check_decoded, check_length
from deepthink_cli.data.source import Row, RowSource, opened
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Note

COMMA, SEMICOLON, TAB = ",", ";", "\t"
_QUOTED = re.compile(r'"[^"]*("|$)')
_csv_limit = Lock()


def table_rows(source: RowSource) -> Iterator[Row | InputError]:
    """Rows of CSV, whose cells are separated by commas, or by semicolons if the header has them alone; and of TSV.

    Raises InputError for a header in which other separators stand, outside of quotation marks, and in TSV for a quoted
    cell with tabs and line breaks: its marks are probably text, as in most TSV.
    """
    with opened(source) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        yield from _table(source, _Lines(text, source.name), TAB if source.row_format == "tsv" else COMMA)


def _table(source: RowSource, lines: _Lines, expected: str) -> Iterator[Row | InputError]:
    start = _start(lines)
    place = f"{source.name}:{len(start)}"
    delimiter = _delimiter(start[-1] if start else "", expected, place, source.header)
    table = csv.reader(
        chain(start, lines),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if source.quotes else csv.QUOTE_NONE,
        strict=True,
    )
    header: list[str] | None = None
    first_line, spanned, count = 1, 0, 0
    try:
        for cells in _records(table):
            where, size, first_line = f"{source.name}:{first_line}", table.line_num - first_line, table.line_num + 1
            lines.begin()
            try:
                _check_cells(cells, where, delimiter)
            except InputError as error:
                if header is None:
                    raise
                yield error
                continue
            if not cells:
                continue
            if header is None:
                header = _header(cells, where) if source.header else [f"column{n + 1}" for n in range(len(cells))]
                if source.header:
                    continue
            count, spanned = count + 1, spanned + size
            if len(cells) != len(header):
                way = f"quote cells that hold {delimiter!r}"
                if not source.quotes:
                    way = f"omit {option('no_quotes')} if marks enclose cells"
                yield InputError(Problem(f"{len(cells)} cells under {len(header)} columns; {way}", place=where))
                continue
            yield Row(dict(zip(header, cells, strict=True)), where)
    except csv.Error as error:
        kind = "TSV" if expected == TAB else "CSV"
        way = f"{option('no_quotes')} reads quotation marks as text" if source.quotes else "save the file as text"
        raise InputError(f"{source.name}:{first_line}: not {kind} ({error}); {way}") from error
    if spanned:
        read = "1 row" if count == 1 else f"{count:,} rows"
        text = (
            f"{source.name}: {count + spanned:,} lines are {read}, because quotation marks enclose line breaks; if "
            f"they have no meaning here, give {option('no_quotes')}"
        )
        source.tell(Note(text))


class _Lines(Iterator[str]):
    """The lines of a table; raises InputError when the lines since `begin` are longer than a row may be."""

    def __init__(self, text: io.TextIOWrapper, name: str) -> None:
        self.text, self.name, self.number = text, name, 0
        self.begin()

    def begin(self) -> None:
        """A new row begins with the next line."""
        self.size = 0

    def __next__(self) -> str:
        line = bounded_line(self.text)
        if not line:
            raise StopIteration
        self.number, self.size = self.number + 1, self.size + len(line)
        check_length(self.size, f"{self.name}:{self.number}")
        return line


def _start(lines: Iterator[str]) -> list[str]:
    """The lines up to the first that is not empty, with which the header begins."""
    start = []
    for line in lines:
        start.append(line)
        if line.strip("\r\n"):
            break
    return start


def _delimiter(header: str, expected: str, where: str, named: bool) -> str:
    """The character between the cells, judged by the header's first line outside of quotation marks.

    If columns are not `named`, the line is a line of data, which may hold other characters.
    """
    unquoted = _QUOTED.sub("", header)
    commas, semicolons, tabs = COMMA in unquoted, SEMICOLON in unquoted, TAB in unquoted
    if expected == TAB and not tabs and (commas or semicolons):
        raise InputError(
            f"{where}: no tab in the header, but {header.strip()!r:.60}; for CSV, use {option('format')} csv"
        )
    if expected == COMMA and commas and semicolons and named:
        raise InputError(
            f"{where}: commas and semicolons in the header {header.strip()!r:.60}; put the column names that hold one "
            "in quotation marks"
        )
    if expected == COMMA and tabs and not commas and not semicolons:
        raise InputError(f"{where}: tabs in the header, and no comma; for TSV, use {option('format')} tsv")
    return SEMICOLON if expected == COMMA and semicolons and not commas else expected


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


def _check_cells(cells: list[str], where: str, delimiter: str) -> None:
    # Decoding errors are kept as surrogates until the row is known, so that the error can name it.
    check_decoded("".join(cells), where)
    if any("\0" in cell for cell in cells):
        raise InputError(f"{where}: holds a NUL byte; save the file as UTF-8")
    if delimiter == TAB and any(TAB in cell and "\n" in cell for cell in cells):
        raise InputError(f"{where}: quotation marks enclose tabs and line breaks; give {option('no_quotes')}")


def _header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if "" in names or len(set(names)) != len(names):
        reason = f"the first row must name every column once, found {names}; if it is data, give {option('no_header')}"
        raise InputError(f"{where}: {reason}")
    return names
