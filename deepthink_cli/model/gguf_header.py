"""The header of a GGUF file: its metadata, and the names and types of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.model.gguf_once import read_once


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key (of arrays of texts only the length), and the types of tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, Any]

    @property
    def architecture(self) -> str:
        """The name of the architecture, which begins the keys of its metadata."""
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str) -> Any:
        """The value of a key of the architecture, such as `attention.head_count`; None if there is none."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_header(file: Path, named: str) -> GgufHeader:
    """Read the header of a GGUF file; raises InputError, which begins with `named`, if it is not one or is damaged.

    Every tensor is known to lie within the file.
    """
    import gguf

    try:
        with open(file, "rb") as stream:
            if stream.read(4) != b"GGUF":
                raise InputError(f"{named}: not a GGUF file; download it again, or name another file")
        with read_once():
            reader = gguf.GGUFReader(str(file))
        metadata = {key: _value(field) for key, field in reader.fields.items()}
    except OSError as error:
        raise InputError(f"{named}: cannot be read: {error.strerror or error}; give a readable file") from error
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:
        raise InputError(f"{named}: truncated or damaged; download it again") from error
    return GgufHeader(metadata, {tensor.name: tensor.tensor_type for tensor in reader.tensors})


def _value(field: Any) -> Any:
    """A value of the metadata; of an array of texts its length."""
    from gguf import GGUFValueType

    texts = field.types[0] == GGUFValueType.ARRAY and field.types[-1] == GGUFValueType.STRING
    return len(field.data) if texts else field.contents()


def check_types(header: GgufHeader, named: str) -> None:
    """Raise InputError unless the `gguf` package can dequantize every tensor's type."""
    import numpy
    from gguf import GGML_QUANT_SIZES, dequantize

    for kind in sorted(set(header.tensors.values())):
        block = numpy.zeros((1, GGML_QUANT_SIZES[kind][1]), dtype=numpy.uint8)
        try:
            dequantize(block, kind)
        except NotImplementedError as error:
            raise InputError(
                f"{named}: has tensors of type {kind.name}, which the gguf package cannot dequantize; upgrade gguf, or "
                "use a file of another type"
            ) from error
