"""Spare transformers from parsing one GGUF file, and building one table of its tensors' names, many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def read_once() -> Iterator[None]:
    """Until the block ends, the `gguf` package parses each file once and builds each table of names once.

    transformers parses the file for the configuration, the tokenizer and the weights, and builds the table for every
    module of the network; each takes seconds. Changes the package for the whole process: hold the lock of
    `quiet_libraries`.
    """
    import gguf

    changed = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        for name, function in changed.items():
            setattr(gguf, name, cache(function))
        yield
    finally:
        for name, function in changed.items():
            setattr(gguf, name, function)
