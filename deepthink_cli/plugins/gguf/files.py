"""GGUF files as a kind of model file, with one parse of a file for all that transformers reads of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.hub import check_installed
from deepthink_cli.model.files import ModelFile
from deepthink_cli.plugins.gguf.header import GgufHeader, check_types, refuse_other_kinds

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
# The parts of a header are its numbers, texts and lengths; the package needs 700 bytes for each part. Files of small
# models with large vocabularies have some 200 bytes for each part.
_PARTS, _BYTES_OF_PART = 2**19, 64


class Gguf(ModelFile):
    """A whole model in the format of llama.cpp, whose weights transformers dequantizes."""

    source = "https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"
    form = "GGUF file"
    converted = "dequantized"

    def check(self, name: str, named: Problem, quantize: str | None) -> None:
        """Raise InputError for a part of a file, for quantization, and without the packages of the extra `gguf`."""
        if part := _PART.search(name):
            reason = (
                f"part {int(part[1])} of {int(part[2])} of a split GGUF file; join the parts with llama-gguf-split "
            )
            raise InputError(named.because(f"{reason}--merge, and name the result"))
        if quantize is not None:
            reason = f"the weights of a GGUF file are dequantized; omit {option('quantize')}"
            raise InputError.of("quantize", quantize, reason)
        check_installed(named, "gguf", "gguf", "accelerate")

    @contextmanager
    def reading(self, weights: bool = False) -> Iterator[None]:
        """Until the block ends, a file is parsed once (`read_once`), and transformers shows no progress of its own."""
        library: Any = sys.modules.get("transformers.modeling_gguf_pytorch_utils")
        shown = library and library.tqdm
        try:
            if library:
                library.tqdm = partial(shown, disable=True)  # which no setting hides
            with read_once():
                yield
        finally:
            if library:
                library.tqdm = shown
            if weights:
                _last.clear()

    def header(self, file: Path, named: Problem) -> GgufHeader:
        """Read the header of a GGUF file, and check that every tensor lies within the file and can be dequantized.

        Raises InputError, which begins with `named`, for another file or a damaged one, and for a file that is not a
        whole causal language model with its tokenizer.
        """
        import gguf

        def value(field: Any) -> Any:
            """A value of the metadata; for an array of texts, its length."""
            texts = (field.types[0], field.types[-1]) == (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING)
            return len(field.data) if texts else field.contents()

        try:
            with open(file, "rb") as stream:
                if stream.read(4) != b"GGUF":
                    raise InputError(named.because("not a GGUF file; download it again, or name another file"))
            with read_once():
                reader = gguf.GGUFReader(str(file))
            metadata = {key: value(field) for key, field in reader.fields.items()}
        except OSError as error:
            raise InputError(
                named.because(f"cannot be read: {error.strerror or error}; give a readable file")
            ) from error
        except (ValueError, LookupError, ArithmeticError, TypeError) as error:
            raise InputError(named.because("truncated or damaged; download it again")) from error
        header = GgufHeader(metadata, {tensor.name: tensor.tensor_type for tensor in reader.tensors})
        refuse_other_kinds(header, named)
        check_types(header, named)
        return header

    def arguments(self, file: Path, config: PretrainedConfig | None = None) -> dict[str, Any]:
        """The whole path: transformers looks for a name in the working directory first."""
        if config is None:
            return {"gguf_file": str(file)}
        from transformers import GgufConfig

        # Without a configuration, the file is read once more, which takes seconds; quantized, kernels of the hub are
        # tried.
        return {"gguf_file": str(file), "config": config, "quantization_config": GgufConfig(dequantize=True)}


GGUF = Gguf()


@contextmanager
def read_once() -> Iterator[None]:
    """Until the block ends, the `gguf` package builds each table of names once, and parses each file once.

    transformers parses the file for the configuration, the tokenizer and the weights, and builds the table for every
    module of the network; each takes seconds. The file that was parsed last is kept for the block in which the weights
    are read. A header of more values than the file holds, or than any model has, raises ValueError. Changes the package
    for the whole process: hold the lock of `quiet_libraries`.
    """
    import gguf

    kept: dict[str, Any] = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    if not isinstance(kept["GGUFReader"], type):  # within another such block
        yield
        return
    changed: dict[str, Any] = {"GGUFReader": partial(_parsed, _bounded(kept["GGUFReader"]))}
    changed["get_tensor_name_map"] = cache(kept["get_tensor_name_map"])
    try:
        for name, function in changed.items():
            setattr(gguf, name, function)
        yield
    finally:
        for name, function in kept.items():
            setattr(gguf, name, function)


_last: dict[str, Any] = {}  # the file that was parsed last, and its reader


def _parsed(reader: Any, path: str) -> Any:
    """The reader of a file; the last reader if the file is the same."""
    stat = os.stat(path)
    file = (os.path.realpath(path), stat.st_size, stat.st_mtime_ns)
    if _last.get("file") != file:
        _last.clear()
        _last.update(reader=reader(path), file=file)
    return _last["reader"]


def _bounded(reader: Any) -> Any:
    """The package's class of readers, limited to the bytes of the file and to the parts of a model's header."""
    import numpy

    class BoundedReader(reader):  # type: ignore[misc]
        parts = 0

        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = mapped.view(numpy.ndarray)  # a slice of a memory map takes three times as long

        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> Any:
            self.parts += 1
            if int(offset) + int(count) * numpy.dtype(dtype).itemsize > len(self.data):
                raise ValueError("the header counts more values than the file holds")
            if self.parts > max(_PARTS, len(self.data) // _BYTES_OF_PART):
                raise ValueError("the header has more parts than that of any model of its size")
            return super()._get(offset, dtype, count, *order, **named)

    return BoundedReader
