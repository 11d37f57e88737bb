"""Parquet, and the facts about columns in its metadata: index columns, and the names of classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.formats.lines import shortened
from deepthink_cli.data.source import Row, RowSource, seekable
from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.events import Note, silent

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema
    from pyarrow.parquet import ParquetFile

_BATCH = 256  # rows


def parquet_rows(source: RowSource) -> Iterator[Row | InputError]:
    """The rows of a Parquet file, or of several files one after another, batch by batch."""
    parts = [replace(source, path=part) for part in source.parts] or [source]
    _check_alike(parts)
    for number, part in enumerate(parts):
        told = replace(part, tell=silent) if number else part  # the first file's notes are for all files
        with _parquet(told) as table:
            yield from _rows(told, table.schema_arrow, table.iter_batches(batch_size=_BATCH))


@contextmanager
def _parquet(source: RowSource) -> Iterator[ParquetFile]:
    """An open Parquet file; raises InputError for a damaged file."""
    import pyarrow
    import pyarrow.parquet

    with seekable(source) as stream:
        try:
            yield pyarrow.parquet.ParquetFile(stream)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{source.name}: not a Parquet file ({shortened(str(error))})") from error


def _check_alike(parts: Sequence[RowSource]) -> None:
    """Raise InputError, a line for each, for files whose columns or classes differ from the first file's."""
    schemas: list[Schema] = []
    for part in parts if len(parts) > 1 else ():
        with _parquet(part) as table:
            schemas.append(table.schema_arrow)
    problems = Problems()
    for part, schema in zip(parts[1:], schemas[1:], strict=True):
        if not schema.equals(schemas[0]) or class_names(schema) != class_names(schemas[0]):
            shown = ", ".join(f"{each.name} {each.type}" for each in schema)
            problems.add(Problem(f"its columns are not those of {parts[0].path}: {shortened(shown)}", place=part.path))
    problems.raise_any()


def _rows(source: RowSource, schema: Schema, batches: Iterable[RecordBatch]) -> Iterator[Row | InputError]:
    """The rows of batches, without the index of a table, and with the names of classes."""
    names = schema.names
    if len(set(names)) != len(names):
        raise InputError(f"{source.name}: must name every column once, found {names}")
    renamed, classes = dict(source.renamed), class_names(schema)
    index = [name for name in index_columns(schema) if name in names and name not in renamed]
    kept = [name for name in names if name not in index] or names
    if len(kept) < len(names):
        columns, mapped = ", ".join(map(repr, index)), f"{option('map')} {index[0]}=NAME"
        text = f"{source.name}: left out {columns}, the index of a table by the file's metadata; to read it, {mapped}"
        source.tell(Note(text))
    first = 1
    for batch in batches:
        yield from _batch_rows(batch.select(kept), source.name, first, classes)
        first += batch.num_rows


def index_columns(schema: Schema) -> list[str]:
    """The columns that pandas stored as the index of a table."""
    columns = _metadata(schema, b"pandas").get("index_columns")
    return [each for each in columns if isinstance(each, str)] if isinstance(columns, list) else []


def class_names(schema: Schema) -> dict[str, list[str]]:
    """The names of classes, by column, for columns of numbers that are a `ClassLabel` of the datasets library."""
    info = _metadata(schema, b"huggingface").get("info")
    features = info.get("features") if isinstance(info, Mapping) else None
    if not isinstance(features, Mapping):
        return {}
    return {name: names for name, feature in features.items() if (names := _names(feature))}


def _names(feature: Any) -> list[str]:
    """The names of the classes of a feature, or of a list's items."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names(feature[0])
    if not isinstance(feature, Mapping):
        return []
    if feature.get("_type") != "ClassLabel":
        return _names(feature.get("feature"))
    names = feature.get("names")
    return names if isinstance(names, list) and all(isinstance(name, str) and name.strip() for name in names) else []


def _metadata(schema: Schema, key: bytes) -> Mapping[str, Any]:
    """The JSON object that a library stored in the metadata; empty if there is none."""
    try:
        content = json.loads((schema.metadata or {}).get(key, b"{}"))
    except (ValueError, RecursionError):  # the rows can be read without
        return {}
    return content if isinstance(content, Mapping) else {}


def _batch_rows(
    batch: RecordBatch, name: str, first: int, classes: Mapping[str, list[str]]
) -> Iterator[Row | InputError]:
    """The rows of a batch; read one by one if a row cannot be read."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            yield InputError(f"{name}:{first}: cannot be read ({shortened(str(error))})")
            return
        for place in range(len(batch)):
            yield from _batch_rows(batch.slice(place, 1), name, first + place, classes)
        return
    for number, fields in enumerate(rows, start=first):
        yield Row(fields, f"{name}:{number}", classes)
