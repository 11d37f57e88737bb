"""Put a memory into a sequence state that llama.cpp saved (docs/elsewhere.md)."""

from __future__ import annotations

from collections.abc import Iterable
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
from deepthink_cli.plugins.exports.sequence_state import Block, SequenceState, parse_state
from deepthink_cli.techniques.registry import trains

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
