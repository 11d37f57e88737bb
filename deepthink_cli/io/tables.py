"""Write rows to a file whose suffix decides the format: JSON Lines, CSV, TSV or Parquet.

CSV, TSV and Parquet are tables: their columns are known before the first row. The column of a nested field has a dot in
its name, as `scores.positive`; if only the outer field has a column, its content is written as JSON.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from deepthink_cli.errors import InputError
from deepthink_cli.io.atomic import replacing, writing
from deepthink_cli.io.text import json_line

Kind = Literal["text", "integer", "number", "boolean"]
Columns = Mapping[str, Kind]
Row = Mapping[str, Any]
Write = Callable[[Iterable[Row]], None]

TABLES = (".csv", ".tsv", ".parquet")
SUFFIXES = (".jsonl", ".ndjson", *TABLES)
GROUP = 2048  # rows of a row group, which are in memory together
_LARGEST = 2**63  # integers beyond it have no column type


def check_suffix(path: str | Path, field: str = "output") -> None:
    """Raise InputError for a file whose suffix names no format; without a suffix, it is JSON Lines."""
    suffix = _suffix(path)
    if suffix and suffix not in SUFFIXES:
        known = f"end the name in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        if suffix in (".gz", ".zst"):
            raise InputError.of(field, path, f"outputs are not compressed; {known}, and compress the file afterwards")
        raise InputError.of(field, path, f"unknown format {suffix!r}; {known}")


def is_table(path: str | Path) -> bool:
    """Whether the file is written as CSV, TSV or Parquet, and needs columns."""
    return _suffix(path) in TABLES


def _suffix(path: str | Path) -> str:
    """The suffix that names the format."""
    return Path(path).suffix.lower()


@contextmanager
def writing_rows(
    path: str | Path, columns: Columns | None = None, field: str = "output", about: Mapping[str, str] | None = None
) -> Iterator[Write]:
    """A function that writes rows, in constant memory; the file replaces `path` if the block succeeds (`replacing`).

    A table has these `columns`, and every field of a row must be in one of them. Parquet files hold `about` as metadata
    of the file. Raises InputError as `check_suffix` does.
    """
    check_suffix(path, field)
    if _suffix(path) == ".parquet":
        with replacing(path, field) as temporary, _parquet(temporary, columns or {}, about or {}) as write:
            yield write
    else:
        with writing(path, field) as file:
            if is_table(path):
                yield separated(file, columns or {}, "," if _suffix(path) == ".csv" else "\t")
            else:
                yield lambda rows: file.writelines(map(json_line, rows))


def kind_of(value: Any) -> Kind:
    """The kind of column that holds a value exactly; text holds anything."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and -_LARGEST <= value < _LARGEST:
        return "integer"
    return "number" if isinstance(value, float) else "text"


def merged(kinds: Iterable[Kind]) -> Kind:
    """The kind of a column with values of these kinds."""
    different = set(kinds)
    if different == {"integer", "number"}:
        return "number"
    return different.pop() if len(different) == 1 else "text"


def columns_of(rows: Iterable[Row]) -> dict[str, Kind]:
    """A column for each field of the rows, which are not empty; lists and objects are written as JSON."""
    kinds: dict[str, set[Kind]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).update([] if value is None else [kind_of(value)])
    return {name: merged(of_column) for name, of_column in kinds.items()}


def flat(row: Row, columns: Columns) -> dict[str, Any]:
    """The cells of a row by column; fields that are not a column are divided into their parts.

    Raises InputError for a value that has no column.
    """
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if name in columns:
            cells[name] = value
        else:
            _divide(name, value, columns, cells)
    return cells


def _divide(name: str, value: Any, columns: Columns, cells: dict[str, Any]) -> None:
    """Add the parts of a field to the cells: parts of an object by name, parts of a list by number, from 1."""
    if not isinstance(value, Mapping | list):
        raise InputError(f"a row holds {name!r}, which is not a column of the table; write .jsonl")
    parts = value.items() if isinstance(value, Mapping) else enumerate(value, start=1)
    for part, inner in parts:
        whole = f"{name}.{part}"
        if whole in columns:
            cells[whole] = inner
        else:
            _divide(whole, inner, columns, cells)


def separated(file: TextIO, columns: Columns, delimiter: str) -> Write:
    """Write the names of the columns, and return a function that writes rows below them."""
    table = csv.writer(_Lines(file), delimiter=delimiter)
    table.writerow(columns)

    def write(rows: Iterable[Row]) -> None:
        for row in rows:
            cells = flat(row, columns)
            table.writerow([_text(cells.get(name)) for name in columns])

    return write


class _Lines:
    """A file whose lines end with a line feed; `csv` quotes carriage returns only if lines end with one."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> None:
        self.file.write(line.removesuffix("\r\n") + "\n")


@contextmanager
def _parquet(path: Path, columns: Columns, about: Mapping[str, str]) -> Iterator[Write]:
    import pyarrow
    import pyarrow.parquet

    types = {"text": pyarrow.string(), "integer": pyarrow.int64(), "number": pyarrow.float64()}
    schema = pyarrow.schema(
        [(name, types.get(kind, pyarrow.bool_())) for name, kind in columns.items()], metadata=dict(about)
    )
    waiting: list[dict[str, Any]] = []
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as file:

        def flush() -> None:
            file.write_table(pyarrow.Table.from_pylist(waiting, schema), row_group_size=GROUP)
            waiting.clear()

        def write(rows: Iterable[Row]) -> None:
            for row in rows:
                cells = flat(row, columns)
                waiting.append({name: _typed(kind, cells.get(name)) for name, kind in columns.items()})
                if len(waiting) == GROUP:
                    flush()

        yield write
        if waiting:
            flush()


def _typed(kind: Kind, value: Any) -> Any:
    """A value of a column of this kind."""
    if value is None:
        return None
    return _text(value) if kind == "text" else float(value) if kind == "number" else value


def _text(value: Any) -> str:
    """A cell: text as it is, nothing for null, other values as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return str(value)
