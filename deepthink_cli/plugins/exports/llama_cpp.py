"""Put a memory into a sequence state that llama.cpp saved (docs/elsewhere.md).

Byte order is little-endian, and only the format is known: which bytes are whose.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deepthink_cli.artifact.files import load_memory
from deepthink_cli.artifact.opening import find_its_model, load_both, open_memory
from deepthink_cli.engine.base import Reading
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note
from deepthink_cli.export import Export, Written
from deepthink_cli.io.atomic import replacing
from deepthink_cli.memory import Memory
from deepthink_cli.techniques.registry import trains

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


TOLERANCE = 0.1  # of keys and values, as a share of the largest of their layer; weights of 4 bits need most of it
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Agreement:
    """The comparison of a state's own keys and values with one reading of the demonstrations by the memory's model.

    `keys` and `values` are the largest differences, as shares of the largest value of their layer. `paired` says that
    the state holds the two halves of each head's keys in turn, as llama.cpp's architecture `llama` has them.
    """

    keys: float
    values: float
    paired: bool


def export(export: Export) -> Written:
    """Write a state saved by llama.cpp with one iteration of a memory in place of its own keys and values.

    The state's own keys and values are compared with one reading of the demonstrations: the memory of T = 1 if the
    file keeps it, otherwise the memory's model reads them again. Raises as the functions below.
    """
    header, metadata = export.header, export.header.metadata
    saved, ids = read_state(export.options.state), tuple(metadata.demonstrations.token_ids)
    check_tokens(saved, ids)
    trained = trains(metadata.technique)
    if 1 in metadata.kept and not trained:
        first = load_memory(header.path, 1)
    else:
        reason = "was trained" if trained else f"does not keep T = 1 (deepthink think {option('keep')} 1,... does)"
        export.tell(Note(f"{header.path} {reason}: reading the demonstrations once to compare them with the state"))
        opened = open_memory(header.path)
        engine, _ = load_both(opened, find_its_model(opened, export.model, export.tell), export.tell)
        (first,) = engine.read([Reading(ids)])
    compared = agreement(saved, first)
    write_state(export.memory, saved, compared.paired, export.output)
    differences = {"keys": compared.keys, "values": compared.values}
    line = (
        f"the state's own keys differ from one reading by {compared.keys:.1e} of their layer's largest, its "
        f"values by {compared.values:.1e} (at most {TOLERANCE:g})"
    )
    return Written({"state_differs_from_one_reading": differences}, [line])


def read_state(path: str | Path) -> SequenceState:
    """Read a saved state; raises InputError for a file that cannot be read or is not a complete state."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError.of(
            "state", path, f"cannot be read: {error.strerror}; name a file saved by llama.cpp"
        ) from error
    return parse_state(data, f"{option('state')} {path}")


def check_tokens(state: SequenceState, token_ids: Iterable[int]) -> None:
    """Raise InputError unless the state has the memory's tokens and cells, at positions 0 to L - 1."""
    ids = tuple(token_ids)
    way = "save it after exactly the memory's token ids (docs/elsewhere.md)"
    if state.tokens != ids:
        pairs = enumerate(zip(state.tokens, ids, strict=False))
        place = next((place for place, (theirs, ours) in pairs if theirs != ours), min(len(state.tokens), len(ids)))
        raise InputError(
            f"{state.name}: has {len(state.tokens)} tokens, the memory {len(ids)}, and token {place} differs; {way}"
        )
    if state.positions != tuple(range(len(ids))):
        raise InputError(
            f"{state.name}: has {len(state.positions)} cells for {len(ids)} tokens, or not in the order of their "
            f"positions; {way}, in a sequence of its own"
        )


def agreement(state: SequenceState, first: Memory) -> Agreement:
    """Compare the state's own keys and values with `first`, the memory of one reading.

    Raises InputError unless they have the same layers and widths, and agree as far as quantized weights do: they are
    then of the same model and the same tokens, in the layout that was assumed.
    """
    ours = [[tensor.shape[0] * tensor.shape[2] for tensor in tensors] for tensors in (first.keys, first.values)]
    theirs = [[block.width for block in blocks] for blocks in (state.keys, state.values)]
    if ours != theirs:
        layers, width = len(state.keys), state.keys[0].width if state.keys else 0
        raise InputError(
            f"{state.name}: has {layers} layers of {width} keys for each token, the memory {len(ours[0])} of "
            f"{ours[0][0]}; save the state with the model that made the memory"
        )
    orders = (False, True) if all(tensor.shape[2] % 2 == 0 for tensor in first.keys) else (False,)
    by_order = {paired: _largest(state, state.keys, first.keys, paired) for paired in orders}
    paired = min(by_order, key=lambda each: by_order[each])
    values = _largest(state, state.values, first.values)
    compared = Agreement(by_order[paired], values, paired)
    if not max(compared.keys, values) <= TOLERANCE:
        raise InputError(
            f"{state.name}: its keys differ from one reading by {compared.keys:.1e} of their layer's largest, its "
            f"values by {values:.1e}, more than {TOLERANCE:g}: it was made by another model; save it with the model "
            "that made the memory"
        )
    return compared


def write_state(memory: Memory, state: SequenceState, paired: bool, output: str | Path) -> None:
    """Write the state with the keys and values of the memory in place of its own; the write is atomic.

    Raises InputError for values that the state's type cannot hold, and DeepThinkError if the write fails.
    """
    data = bytearray(state.data)
    for blocks, tensors, in_pairs in ((state.keys, memory.keys, paired), (state.values, memory.values, False)):
        for block, tensor in zip(blocks, tensors, strict=True):
            rows = _rows(tensor, in_pairs).to(_DTYPES[block.type])
            if not rows.isfinite().all():
                raise InputError(
                    f"{state.name}: its cache has the type {block.type}, which the memory exceeds; use caches of type "
                    "f32"
                )
            shaped = (rows.T if block.transposed else rows).contiguous()
            data[block.begin : block.end] = shaped.view(torch.uint8).numpy().tobytes()
    with replacing(output) as temporary:
        temporary.write_bytes(data)


def _rows(tensor: Tensor, paired: bool) -> Tensor:
    """Keys or values (kv_heads, L, head_dim) as (L, kv_heads * head_dim), the halves of each head in turn if `paired`.

    In pairs, value i of half h becomes value 2i + h.
    """
    tensor = tensor.cpu()
    if paired:
        heads, length, size = tensor.shape
        tensor = tensor.view(heads, length, 2, size // 2).transpose(2, 3).flatten(2)
    return tensor.transpose(0, 1).flatten(1)


def _largest(state: SequenceState, blocks: Iterable[Block], tensors: Iterable[Tensor], paired: bool = False) -> float:
    """The largest difference of the state's blocks from our tensors, as a share of the largest value of its layer."""
    shares = [0.0]
    for block, tensor in zip(blocks, tensors, strict=True):
        values = torch.frombuffer(bytearray(state.data[block.begin : block.end]), dtype=_DTYPES[block.type])
        theirs = (values.view(block.width, -1).T if block.transposed else values.view(-1, block.width)).float()
        ours = _rows(tensor, paired)
        shares.append(float((ours - theirs).abs().max() / ours.abs().max()))
    return max(shares) if all(share == share for share in shares) else float("inf")
