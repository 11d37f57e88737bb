"""Rows of a table, read one at a time from JSON Lines, CSV, TSV, Parquet or standard input.

Handles files and fields; does not know which field is the label.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from deepthink_cli.errors import InputError, Problems

STDIN = "-"
_BOM = b"\xef\xbb\xbf"
_csv_limit = Lock()


@dataclass(frozen=True)
class Row:
    """One row: its fields in the file's order, and its file and line (`demos.jsonl:3`)."""

    fields: dict[str, Any]
    where: str


def read_rows(source: str, problems: Problems | None = None) -> Iterator[Row]:
    """Yield the rows of `source`, a path or `-` for JSON Lines on standard input.

    The format follows the suffix: .jsonl, .ndjson or .json (one object a line), .csv, .tsv, .parquet;
    a path without a suffix is read as JSON Lines. Raises InputError with `file:line` at the first
    row that cannot be read (with `problems`, collects it there and continues), and for a source
    that is missing or holds no row.
    """
    empty = True
    for row in _reader(source)(source):
        empty = False
        if isinstance(row, Row):
            yield row
        elif problems is None:
            raise row
        else:
            problems.messages.extend(row.messages)
    if empty:
        raise InputError(f"{name_of(source)}: no rows; give at least one")


def check_rereadable(source: str) -> None:
    """Raise InputError for standard input, whose rows can be read only once."""
    if source == STDIN:
        raise InputError("LABELLED -: evaluation reads its rows twice; give a file")


def name_of(source: str) -> str:
    """The name of a source in messages."""
    return "standard input" if source == STDIN else source


def _reader(source: str) -> Callable[[str], Iterator[Row | InputError]]:
    if source == STDIN:
        return _json_lines
    if not os.path.exists(source):
        raise InputError(f"{source}: no such file; check the path, or use - for standard input")
    if os.path.isdir(source):
        raise InputError(f"{source}: is a directory; name a .jsonl, .csv, .tsv or .parquet file in it")
    readers = {
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".json": _json_lines,
        "": _json_lines,
        ".csv": _csv,
        ".tsv": _tsv,
        ".parquet": _parquet,
    }
    suffix = Path(source).suffix.lower()
    if suffix not in readers:
        raise InputError(f"{source}: unknown format {suffix!r}; use .jsonl, .csv, .tsv or .parquet")
    return readers[suffix]


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    if source == STDIN:
        # Not sys.stdin: at exit Python would wait for a thread that still reads from it.
        with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
            yield stream
        return
    if not os.access(source, os.R_OK):
        raise InputError(f"{source}: cannot be read: permission denied")
    with open(source, "rb") as stream:
        yield stream


def _json_lines(source: str) -> Iterator[Row | InputError]:
    # The bytes are split at \n, never with str.splitlines, which also breaks inside a row at U+2028 and U+0085.
    with _opened(source) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{name_of(source)}:{number}"
            line = line.removeprefix(_BOM) if number == 1 else line
            if not line.strip():
                continue
            try:
                text = _decoded(line, where)
                yield Row(_parsed_object(text, where), where)
            except InputError as error:
                yield error


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 (byte 0x{line[error.start]:02x}); save the file as UTF-8") from error


def _parsed_object(text: str, where: str) -> dict[str, Any]:
    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise InputError(f"{where}: {number} is not a finite number; use a number or a string")
        return value

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            names = [name for name, _ in pairs]
            duplicate = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{where}: field {duplicate!r} is duplicated; keep one")
        return fields

    try:
        value = json.loads(text, parse_constant=finite, parse_float=finite, object_pairs_hook=unique)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = error.msg.removesuffix(" at") if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise InputError(f"{where}: not JSON ({reason}): {_short(text)}; write one object a line") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise InputError(f"{where}: a number is too long: {_short(text)}") from error
    if not isinstance(value, dict):
        raise InputError(f'{where}: not an object: {_short(text)}; write rows like {{"text": "...", "label": "..."}}')
    if "\\u" in text:
        _refuse_lone_surrogates(value, where)
    return value


def _refuse_lone_surrogates(fields: dict[str, Any], where: str) -> None:
    for name, value in fields.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            surrogate = ascii(error.object[error.start])
            raise InputError(f"{where}: {name!r} holds the lone surrogate {surrogate}; remove it") from error


def _csv(source: str, delimiter: str = ",") -> Iterator[Row | InputError]:
    with _opened(source) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        table = csv.reader(lines, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        first_line = 1
        try:
            for cells in _csv_rows(table):
                where, first_line = f"{source}:{first_line}", table.line_num + 1
                _check_decoded(cells, where)
                if not cells:
                    continue
                if header is None:
                    header = _header(cells, where)
                    continue
                if len(cells) != len(header):
                    counts = f"{len(cells)} cells under {len(header)} columns"
                    yield InputError(f"{where}: {counts}; quote cells that hold {delimiter!r}")
                    continue
                yield Row(dict(zip(header, cells, strict=True)), where)
        except csv.Error as error:
            raise InputError(f"{source}:{first_line}: not {'TSV' if delimiter != ',' else 'CSV'} ({error})") from error


def _csv_rows(table: Iterator[list[str]]) -> Iterator[list[str]]:
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


def _check_decoded(cells: list[str], where: str) -> None:
    # Decoding errors are kept as surrogates until the row is known, so that the error can name it.
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) - 0xDC00
        raise InputError(f"{where}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8") from error
    if any("\0" in cell for cell in cells):
        raise InputError(f"{where}: holds a NUL byte; save the file as UTF-8")


def _tsv(source: str) -> Iterator[Row | InputError]:
    return _csv(source, delimiter="\t")


def _header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if "" in names or len(set(names)) != len(names):
        raise InputError(f"{where}: the first row must name every column once, found {names}")
    return names


def _parquet(source: str) -> Iterator[Row | InputError]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(source)
        names = table.schema_arrow.names
        if len(set(names)) != len(names):
            raise InputError(f"{source}: must name every column once, found {names}")
        first = 1
        for batch in table.iter_batches(batch_size=256):
            yield from _parquet_rows(batch, source, first)
            first += len(batch)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{source}: not a Parquet file ({_short(str(error))})") from error


def _parquet_rows(batch: Any, source: str, first: int) -> Iterator[Row | InputError]:
    """The rows of a batch; if one cannot be read, the rows are read one by one."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            yield InputError(f"{source}:{first}: cannot be read ({_short(str(error))})")
            return
        for place in range(len(batch)):
            yield from _parquet_rows(batch.slice(place, 1), source, first + place)
        return
    for number, fields in enumerate(rows, start=first):
        yield Row(fields, f"{source}:{number}")


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
