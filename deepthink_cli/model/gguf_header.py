"""The header of a GGUF file: its metadata, and the names and places of its tensors.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError

_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9  # the other types of values
_MOST_DIMENSIONS = 8
_ALIGNMENT = 32  # bytes, unless the metadata name another


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key (of arrays of texts only the length), and tensors by name: type, shape and first byte.

    Shapes are in the order of torch; `data` is the first byte of all tensors, `size` that of the file.
    """

    metadata: dict[str, Any]
    tensors: dict[str, tuple[int, tuple[int, ...], int]]
    data: int
    size: int

    @property
    def architecture(self) -> str:
        """The name of the architecture, which begins the keys of its metadata."""
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str) -> Any:
        """The value of a key of the architecture, such as `attention.head_count`; None if there is none."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_header(file: Path, named: str) -> GgufHeader:
    """Read the header of a GGUF file; raises InputError, which begins with `named`, if it is not one or is damaged."""
    try:
        with open(file, "rb") as stream:
            if stream.read(4) != b"GGUF":
                raise InputError(f"{named}: not a GGUF file; download it again, or name another file")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _header(content, named)
    except OSError as error:
        raise InputError(f"{named}: cannot be read: {error.strerror or error}; give a readable file") from error
    except (struct.error, ValueError, LookupError) as error:
        raise InputError(f"{named}: truncated or damaged in its header; download it again") from error


def _header(content: mmap.mmap, named: str) -> GgufHeader:
    version, tensor_count, key_count = struct.unpack_from("<IQQ", content, 4)
    if version not in _VERSIONS:
        raise InputError(f"{named}: GGUF version {version}; versions 2 and 3 can be read, convert the model again")
    metadata, place = dict[str, Any](), 24
    for _ in range(key_count):
        key, place = _text(content, place)
        (kind,) = struct.unpack_from("<I", content, place)
        metadata[key], place = _value(content, place + 4, kind)
    tensors = {}
    for _ in range(tensor_count):
        name, place = _text(content, place)
        (dimensions,) = struct.unpack_from("<I", content, place)
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError("a tensor with too many dimensions")
        *shape, kind, offset = struct.unpack_from(f"<{dimensions}QIQ", content, place + 4)
        place += 16 + 8 * dimensions
        tensors[name] = (kind, tuple(reversed(shape)), offset)
    alignment = int(metadata.get("general.alignment", _ALIGNMENT))
    return GgufHeader(metadata, tensors, -(-place // alignment) * alignment if alignment else place, len(content))


def _value(content: mmap.mmap, place: int, kind: int) -> tuple[Any, int]:
    """A value and the place behind it; of an array of texts its length."""
    if kind == _TEXT:
        return _text(content, place)
    if kind != _ARRAY:
        (value,) = struct.unpack_from(f"<{_NUMBERS[kind]}", content, place)
        return value, place + struct.calcsize(f"<{_NUMBERS[kind]}")
    kind, count = struct.unpack_from("<IQ", content, place)
    place += 12
    if kind == _TEXT:
        for _ in range(count):
            (length,) = struct.unpack_from("<Q", content, place)
            place += 8 + length
        return count, place
    size = count * struct.calcsize(f"<{_NUMBERS[kind]}")
    if size > len(content):
        raise ValueError("an array that is longer than the file")
    return list(struct.unpack_from(f"<{count}{_NUMBERS[kind]}", content, place)), place + size


def _text(content: mmap.mmap, place: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", content, place)
    end = place + 8 + length
    if end > len(content):
        raise ValueError("a text that is longer than the file")
    return content[place + 8 : end].decode(), end


def check_tensors(header: GgufHeader, named: str) -> None:
    """Raise InputError unless every tensor is within the file and the `gguf` package can dequantize its type."""
    import numpy
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    for kind in sorted({kind for kind, _, _ in header.tensors.values()}):
        try:
            block = numpy.zeros((1, GGML_QUANT_SIZES[GGMLQuantizationType(kind)][1]), dtype=numpy.uint8)
            dequantize(block, GGMLQuantizationType(kind))
        except (NotImplementedError, ValueError, LookupError) as error:
            name = GGMLQuantizationType(kind).name if kind in list(GGMLQuantizationType) else f"of number {kind}"
            raise InputError(
                f"{named}: has tensors of type {name}, which the gguf package cannot dequantize; upgrade gguf, or "
                "use a file of another type"
            ) from error
    end = header.data
    for kind, shape, offset in header.tensors.values():
        elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        end = max(end, header.data + offset + prod(shape) // elements * size)
    if end > header.size:
        raise InputError(
            f"{named}: truncated or damaged: its tensors end at byte {end:,}, the file at {header.size:,}; "
            "download it again"
        )
