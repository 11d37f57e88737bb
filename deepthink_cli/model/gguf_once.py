"""Read a GGUF file once, and within its bounds, for this package and for transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# The parts of a header are its numbers, texts and lengths; the package keeps 700 bytes for each. Files of small models
# with large vocabularies have some 200 bytes for each part.
_PARTS, _BYTES_OF_PART = 2**19, 64


@contextmanager
def read_once() -> Iterator[None]:
    """Until the block ends, the `gguf` package parses each file once and builds each table of names once.

    transformers parses the file for the configuration, the tokenizer and the weights, and builds the table for every
    module of the network; each takes seconds. A header of more values than the file holds, or than any model has,
    raises ValueError. Changes the package for the whole process: hold the lock of `quiet_libraries`.
    """
    import gguf

    kept: dict[str, Any] = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    if not isinstance(kept["GGUFReader"], type):  # within another such block
        yield
        return
    changed = {**kept, "GGUFReader": _bounded(kept["GGUFReader"])}
    try:
        for name, function in changed.items():
            setattr(gguf, name, cache(function))
        yield
    finally:
        for name, function in kept.items():
            setattr(gguf, name, function)


def _bounded(reader: Any) -> Any:
    """The package's reader; it reads nothing beyond the end of the file, but as often as the header says."""
    import numpy

    class BoundedReader(reader):  # type: ignore[misc]
        parts = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> Any:
            self.parts += 1
            if int(offset) + int(count) * numpy.dtype(dtype).itemsize > len(self.data):
                raise ValueError("the header counts more values than the file holds")
            if self.parts > max(_PARTS, len(self.data) // _BYTES_OF_PART):
                raise ValueError("the header has more parts than that of any model of its size")
            return super()._get(offset, dtype, count, *order, **named)

    return BoundedReader
