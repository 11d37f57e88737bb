"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deepthink_cli.data.formats.lines import shortened
from deepthink_cli.data.opening import seekable
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import InputError

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
                yield from _rows(batch, source.name, first)
                first += len(batch)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{source.name}: not a Parquet file ({shortened(str(error))})") from error


def _rows(batch: Any, name: str, first: int) -> Iterator[Row | InputError]:
    """The rows of a batch; if one cannot be read, the rows are read one by one."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            yield InputError(f"{name}:{first}: cannot be read ({shortened(str(error))})")
            return
        for place in range(len(batch)):
            yield from _rows(batch.slice(place, 1), name, first + place)
        return
    for number, fields in enumerate(rows, start=first):
        yield Row(fields, f"{name}:{number}")
