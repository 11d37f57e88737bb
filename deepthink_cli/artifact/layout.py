"""The tensors of a memory file: names, dtypes, shapes and order (docs/artifact.md); known without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepthink_cli.errors import InputError
from deepthink_cli.provenance import Quantized

PARTS = ("keys", "values")
RANGES = ("low", "scale")  # tensors beside the codes of a quantized tensor
_NAME = re.compile(r"iteration\.(\d{1,6})\.layer\.(\d{1,6})\.(keys|values)(?:\.(low|scale))?")
_BYTES = {"F32": 4, "BF16": 2, "U8": 1}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor as the header lists it: dtype, shape and the offsets of its bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def tensor_name(iteration: int, layer: int, part: str) -> str:
    """`iteration.{t}.layer.{l}.keys` or `.values`."""
    return f"iteration.{iteration}.layer.{layer}.{part}"


def in_file_order(tensors: Mapping[str, TensorEntry]) -> list[tuple[str, TensorEntry]]:
    """The tensors in the order of their bytes: wider dtypes first, so that all are aligned; then by name."""
    return sorted(tensors.items(), key=lambda item: (-_BYTES.get(item[1].dtype, 0), item[0]))


def layers_of(tensors: Mapping[str, TensorEntry]) -> int:
    """The number of layers in the tensors' names."""
    return len({match[2] for name in tensors if (match := _NAME.fullmatch(name))})


def check_layout(
    path: str, tensors: Mapping[str, TensorEntry], kept: Sequence[int], length: int, quantized: Quantized | None
) -> int:
    """Raise InputError unless the tensors belong to the kept iterations, without gaps; return their bytes.

    `length` is L, the number of demonstration tokens.
    """
    suffixes = ("", *(f".{name}" for name in RANGES)) if quantized else ("",)
    expected = {
        tensor_name(t, layer, part) + suffix
        for t in kept
        for layer in range(layers_of(tensors))
        for part in PARTS
        for suffix in suffixes
    }
    if not kept or not expected or set(tensors) != expected:
        raise InputError(f"{path}: damaged: its tensors are not those of iterations {list(kept)}")
    for name in sorted(tensors):
        _check_tensor(path, name, tensors, length, quantized)
    place = 0
    for name, entry in in_file_order(tensors):
        if entry.begin != place or entry.end - entry.begin != _BYTES[entry.dtype] * math.prod(entry.shape):
            raise InputError(f"{path}: damaged: the bytes of {name} are at the wrong offset")
        place = entry.end
    return place


def packed_length(length: int, bits: int) -> int:
    """Rows of codes for L tokens: two tokens share a byte at 4 bits."""
    return math.ceil(length * bits / 8)


def _check_tensor(
    path: str, name: str, tensors: Mapping[str, TensorEntry], length: int, quantized: Quantized | None
) -> None:
    """Raise InputError unless a tensor has the dtype and shape of the file's form."""
    entry, match = tensors[name], _NAME.fullmatch(name)
    assert match is not None
    if match[4] is None:
        dtype, rows = ("F32", length) if quantized is None else ("U8", packed_length(length, quantized.bits))
        fits = len(entry.shape) == 3 and entry.shape[1] == rows and min(entry.shape) >= 1
        shown = f"(heads, {rows}, size)"
    else:
        assert quantized is not None
        heads, _, size = tensors[name.removesuffix(f".{match[4]}")].shape  # checked before: its name is shorter
        dtype, groups = "BF16", math.ceil((length if match[3] == "keys" else size) / quantized.group)
        shape = (heads, groups, size) if match[3] == "keys" else (heads, length, groups)
        fits, shown = entry.shape == shape, str(list(shape))
    if entry.dtype != dtype or not fits:
        raise InputError(f"{path}: damaged: {name} is {entry.dtype} {list(entry.shape)}, not {dtype} {shown}")
