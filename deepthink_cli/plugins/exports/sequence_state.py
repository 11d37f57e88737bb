"""The file of one sequence's state, as llama.cpp writes it (docs/elsewhere.md): the places of its keys and values.

Byte order is little-endian. Nothing is written here, and only the format is known: which bytes are whose.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.errors import InputError

MAGIC = 0x67677371  # "ggsq" as a number
VERSIONS = (2, 3, 4)
_TYPES = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}  # of ggml, by number: name and bytes of a value
_SERVER_TOKENS = (-1, 1)  # llama-server writes these two, then the number of tokens, the tokens, and the media
_CACHE = "use caches of type f32, f16 or bf16 (--cache-type-k, --cache-type-v)"
_SAVE = "save one with llama-server's --slot-save-path or llama_state_seq_save_file"


@dataclass(frozen=True)
class Block:
    """Keys or values of one layer: L cells of `width` values of one type, from `begin` to `end` of the file.

    A block is (L, width), or (width, L) if it is transposed, which values are without flash attention.
    """

    type: str
    width: int
    begin: int
    end: int
    transposed: bool = False


@dataclass(frozen=True)
class SequenceState:
    """A state of one sequence: its name in messages, bytes, tokens, positions of cells, and blocks."""

    name: str
    data: bytes
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    keys: tuple[Block, ...]
    values: tuple[Block, ...]


def parse_state(data: bytes, name: str) -> SequenceState:
    """Parse a whole file; raises InputError, prefixed with `name`, unless every byte is as the format says."""
    reader = _Reader(data, name)
    magic, version = reader.words("<II", "its header")
    if magic != MAGIC:
        raise InputError(f"{name}: not a sequence state of llama.cpp; {_SAVE}")
    if version not in VERSIONS:
        raise InputError(
            f"{name}: version {version} of llama.cpp's sequence state; this program reads versions "
            f"{', '.join(map(str, VERSIONS))}: upgrade it, or save the state with such a build"
        )
    (count,) = reader.words("<I", "its header")
    tokens = _plain(reader.words(f"<{count}i", "its tokens"), name)
    (streams,) = reader.words("<I", "its cells")
    if streams != 1:
        raise InputError(f"{name}: holds {streams} streams of cells, not one; save it from a context for one sequence")
    (cells,) = reader.words("<I", "its cells")
    words = reader.words(f"<{3 * cells}i", "its cells")  # position, number of sequences, sequence
    if any(number != 1 for number in words[1::3]):
        raise InputError(
            f"{name}: its cells are not those of one sequence with a position for each; models with positions in two "
            "dimensions cannot be exported"
        )
    positions = tuple(words[0::3])
    if not positions:
        raise InputError(f"{name}: holds no tokens; save it after the demonstrations' tokens were read")
    transposed, layers = reader.words("<II", "its layers")
    rotated = reader.words("<II", "its layers") if version >= 4 else (0, 0)
    if transposed > 1 or any(rotated):
        raise InputError(
            f"{name}: its keys or values are in an unknown form ({transposed}, {rotated[0]}, {rotated[1]}); {_CACHE}"
        )
    keys = tuple(reader.block(len(positions), False) for _ in range(layers))
    values = tuple(reader.block(len(positions), bool(transposed)) for _ in range(layers))
    if reader.place != len(data):
        raise InputError(
            f"{name}: {len(data) - reader.place} bytes follow its last layer: a model with several caches, as for "
            "attention windows, or a damaged file; models with one cache can be exported"
        )
    return SequenceState(name, data, tokens, positions, keys, values)


def _plain(tokens: Sequence[int], name: str) -> tuple[int, ...]:
    """The token ids, also if llama-server wrote them with a header."""
    if tuple(tokens[:2]) != _SERVER_TOKENS:
        return tuple(tokens)
    count = tokens[2] if len(tokens) > 2 else -1
    if not 0 <= count == len(tokens) - 4 or tokens[-1] != 0:
        raise InputError(f"{name}: damaged, or with images or sounds among its tokens; save a state of text only")
    return tuple(tokens[3:-1])


class _Reader:
    """Reads a file from its start; every count is compared with the bytes that are left before it is used."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.place = data, name, 0

    def words(self, form: str, what: str) -> tuple[int, ...]:
        """The next numbers, in a form of `struct`."""
        begin = self.skip(struct.calcsize(form), what)
        return struct.unpack_from(form, self.data, begin)

    def skip(self, size: int, what: str) -> int:
        """Pass over bytes; returns where they begin."""
        begin, left = self.place, len(self.data) - self.place
        if size > left:
            raise InputError(f"{self.name}: damaged: ends in {what}: {size} bytes needed, {left} left; save it again")
        self.place += size
        return begin

    def block(self, cells: int, transposed: bool) -> Block:
        """The keys or the values of the next layer."""
        (number,) = self.words("<i", "a layer's cells")
        if number not in _TYPES:
            raise InputError(f"{self.name}: its cache has ggml's type {number}; {_CACHE}")
        kind, size = _TYPES[number]
        if transposed:
            each, width = self.words("<II", "a layer's cells")
            row = each * width
        else:
            (row,) = self.words("<Q", "a layer's cells")
            each, width = size, row // size
        if each != size or row != size * width or not width:
            raise InputError(f"{self.name}: damaged: a layer's cells have {row} bytes of {kind}; save it again")
        begin = self.skip(row * cells, "a layer's cells")
        return Block(kind, width, begin, self.place, transposed)
