"""Store a memory in 8 or 4 bits a number: the work of `deepthink quantize`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deepthink_cli.artifact.format import Header, read_header
from deepthink_cli.provenance import Bits

if TYPE_CHECKING:
    from deepthink_cli.plugins.memories.diff import MemoryDiff


IntegerName = Literal["int8", "int4"]
_BITS: dict[IntegerName, Bits] = {"int8": 8, "int4": 4}


@dataclass(frozen=True)
class QuantizedFile:
    """A memory and the file of its quantized form, with the change of its last iteration's keys and values."""

    source: Header
    header: Header
    change: MemoryDiff

    @property
    def share(self) -> float:
        """The bytes of the quantized file divided by the bytes of its source."""
        return self.header.size / self.source.size


def quantize(memory: str | Path, to: IntegerName, output: str | Path) -> QuantizedFile:
    """Write all iterations of a float32 memory file again in 8 or 4 bits a number, with the same provenance.

    Raises InputError for a file that is damaged or quantized already, and for an output that cannot be written.
    """
    from deepthink_cli.artifact.files import save_quantized
    from deepthink_cli.plugins.memories.diff import diff

    source = read_header(memory)
    header = save_quantized(source, _BITS[to], output)
    return QuantizedFile(source, header, diff(memory, output))
