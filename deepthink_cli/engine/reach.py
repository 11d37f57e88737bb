"""The keys that the tokens of a packed pass attend to in a layer, by its window; planned once for each window.

Slots number the tokens of [memory ; pass] as a cache does: token n of a row after L tokens has slot L + n, whatever its
position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from deepthink_cli.engine.packing import Block, part_of, sequence
from deepthink_cli.memory import Memory
from deepthink_cli.model.families import WINDOW_SIZES

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Slots = TypeVar("Slots", int, Tensor)


class UnsupportedAttention(Exception):
    """The network's attention cannot be packed, for the reason in the message; use the padded engine."""


def first_seen(window: int, slots: Slots) -> Slots:
    """The first slot that the token at a slot attends to in a layer with a window; negative if it holds all slots."""
    return slots - window + 1


@dataclass(frozen=True)
class ModelMask:
    """The attention mask of a network's layers in a packed pass: a window, or None for all slots.

    A token attends to the last `window` slots up to its own.
    """

    window: int | None

    def __getitem__(self, _: Any) -> ModelMask:
        """Raise UnsupportedAttention: a network that changes its masks cannot be packed."""
        raise UnsupportedAttention("it changes its attention masks")


def model_mask(
    *, mask_function: Callable[..., Tensor], local_size: int | None = None, use_vmap: bool = False, **_: Any
) -> ModelMask:
    """The window of the mask that transformers would build from its function of slots; for packed passes.

    It is compared in a sample of slots. Raises UnsupportedAttention for a mask that is not causal with such a window.
    """
    if not use_vmap:  # otherwise the network adds a function of its own
        size = local_size or 2
        keys_K = torch.tensor([0, 1, size - 1, size, size + 1, 2 * size - 1, 2 * size])
        slots_Q1 = keys_K[2:, None]
        zero = torch.zeros((), dtype=torch.long)
        first_Q1 = slots_Q1 * 0 if local_size is None else first_seen(local_size, slots_Q1)
        if torch.equal(mask_function(zero, zero, slots_Q1, keys_K), (keys_K <= slots_Q1) & (keys_K >= first_Q1)):
            return ModelMask(local_size)
    raise UnsupportedAttention("its attention mask is custom code")


@contextmanager
def narrowed(network: PreTrainedModel, size: int) -> Iterator[None]:
    """Inside the block windows hold at most `size` tokens, so that a short text is longer than a window.

    The caller holds the model's lock.
    """
    parts = [(module, vars(module)) for module in network.modules()]
    configs = {id(config): config for _, fields in parts if (config := fields.get("config")) is not None}
    text = network.config.get_text_config(decoder=True)
    owners = [*parts, *((config, vars(config)) for config in {**configs, id(text): text}.values())]
    wide = [
        (owner, name, fields[name])
        for owner, fields in owners
        for name in WINDOW_SIZES
        if isinstance(fields.get(name), int) and fields[name] > size
    ]
    try:
        for owner, name, _ in wide:
            setattr(owner, name, size)
        yield
    finally:
        for owner, name, value in wide:
            setattr(owner, name, value)


STEP = 256  # tokens of a long row that are processed together if a window hides keys from some of them


@dataclass(frozen=True)
class Part:
    """Earlier keys of a span, slots `first` to `stop` - 1, and the tokens that attend to them.

    `places_M` are the tokens' indices in the span; None for all tokens. `mask_11ML` is added to their
    attention scores; None if every token attends to all keys of the part.
    """

    first: int
    stop: int
    places_M: Tensor | None = None
    mask_11ML: Tensor | None = None


@dataclass(frozen=True)
class Span:
    """Consecutive blocks of a pass that attend to the same parts of the past, and to their own rows."""

    blocks: tuple[Block, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Reach:
    """The keys that consecutive blocks of a pass attend to: the past (its memories concatenated), and their own rows.

    Only the final states of tokens `read_M` are used; None for all tokens. So in the last layer the other tokens do not
    attend to the past.
    """

    past: tuple[Memory, ...]
    blocks: tuple[Block, ...]
    read_M: Tensor | None = None

    def is_last(self, layer: int) -> bool:
        """Whether only tokens `read_M` attend to the past in a layer."""
        return self.read_M is not None and bool(self.past) and layer == len(self.past[0].keys) - 1

    def earlier(self, layer: int, part: Part, key_1GTD: Tensor, value_1GTD: Tensor) -> tuple[Tensor, Tensor]:
        """key_1GLD and value_1GLD of a part's slots in one layer; copied only if they span several memories.

        Slots after the past belong to the reach's own tokens, which are one plain sequence then.
        """
        if self.past and layer >= len(self.past[0].keys):
            raise UnsupportedAttention("some of its layers attend to the keys and values of other layers")
        keys = [memory.keys[layer] for memory in self.past]
        values = [memory.values[layer] for memory in self.past]
        for past, present_1GTD in ((keys, key_1GTD), (values, value_1GTD)):
            if past and past[0].shape[::2] != present_1GTD.shape[1::2]:
                raise UnsupportedAttention("its cache does not contain the keys and values that its attention uses")
        own_keys, own_values = of_blocks(self.blocks, key_1GTD), of_blocks(self.blocks, value_1GTD)
        return _between(keys, own_keys, part), _between(values, own_values, part)

    def spans(self, window: int | None, last: bool, like: Tensor) -> Iterator[Span]:
        """The spans of the blocks in a layer with this window; `last` if `is_last` is True.

        Masks have the dtype and the device of `like`.
        """
        end, places_M = sum(memory.length for memory in self.past), self.read_M if last else None
        block = self.blocks[0]
        if window is None or first_seen(window, end + _deepest(self.blocks)) <= 0:
            yield Span(self.blocks, (Part(0, end, places_M),) if end else ())
        elif len(self.blocks) == len(block.depths) == 1 and block.plain and places_M is None:
            for start in range(0, block.size, STEP):
                step = sequence(block.start + start, min(STEP, block.size - start))
                yield _windowed(window, (step,), end + start, None, like)
        else:
            yield _windowed(window, self.blocks, end, places_M, like)


def _windowed(window: int, blocks: tuple[Block, ...], end: int, places_M: Tensor | None, like: Tensor) -> Span:
    """The span of the blocks: keys before slot `end` that all tokens attend to, and keys that only some attend to."""
    first, shared = (min(end, max(0, first_seen(window, end + depth))) for depth in (0, _deepest(blocks)))
    parts = [Part(shared, end, places_M)] if shared < end else []
    if first < shared:
        parts += _partly(window, blocks, end, (first, shared), places_M, like)
    return Span(tuple(_hiding(window, block, end) for block in blocks), tuple(parts))


def _partly(
    window: int, blocks: tuple[Block, ...], end: int, slots: tuple[int, int], places_M: Tensor | None, like: Tensor
) -> Iterator[Part]:
    """The slots as parts, each with the tokens that attend to any of its slots; none without slots or tokens."""
    depths_T = torch.tensor([depth for block in blocks for depths in block.depths for depth in depths])
    firsts_T = first_seen(window, depths_T + end)
    sees_T = firsts_T < slots[1]
    if places_M is not None:
        sees_T &= torch.zeros_like(sees_T).index_fill_(0, places_M.cpu(), True)
    seeing_M = sees_T.nonzero()[:, 0]
    if not len(seeing_M):
        return
    hidden_ML = torch.arange(*slots) < firsts_T[seeing_M][:, None]
    yield Part(
        *slots,
        places_M=None if len(seeing_M) == len(sees_T) else seeing_M.to(like.device),
        mask_11ML=masked(hidden_ML[None, None], like) if hidden_ML.any() else None,
    )


def _hiding(window: int, block: Block, end: int) -> Block:
    """The block, with the depths at which attention begins if a token is before the window of another in its row."""
    if first_seen(window, end + _deepest((block,))) <= end:
        return block
    return replace(block, firsts=[[first_seen(window, depth) for depth in depths] for depths in block.depths])


def _deepest(blocks: Sequence[Block]) -> int:
    return max(max(depths) for block in blocks for depths in block.depths)


def of_blocks(blocks: Sequence[Block], tokens: Tensor) -> Tensor:
    """The part of consecutive blocks in a tensor of the pass, of shape (1, H, T, ...)."""
    return part_of(tokens, 2, blocks[0].start, blocks[-1].stop)


def _between(past: Sequence[Tensor], present_1GTD: Tensor, part: Part) -> Tensor:
    """The slots of a part, of shape (1, G, L, D), in the dtype and on the device of the present."""
    pieces, start = [], 0
    for tensor_GLD in (*past, present_1GTD[0]):
        first, stop = max(0, part.first - start), min(part.stop - start, tensor_GLD.shape[1])
        if first < stop:
            pieces.append(part_of(tensor_GLD, 1, first, stop).to(present_1GTD))
        start += tensor_GLD.shape[1]
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1))[None]


def masked(hidden: Tensor, like: Tensor) -> Tensor:
    """A mask to add to attention scores: -inf where hidden, else 0; with the device and the dtype of `like`."""
    hidden = hidden.to(like.device)
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)
