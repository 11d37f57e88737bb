"""Attention windows: which earlier tokens a layer lets a token attend to, determined from the model's own mask.

Slots number the tokens of [memory ; pass] as a cache does: token n of a row after L tokens has slot L + n, whatever
its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deepthink_cli.model.families import WINDOW_SIZES

Slots = TypeVar("Slots", int, Tensor)


class UnsupportedAttention(Exception):
    """The network's attention cannot be packed, for the reason in the message; use the padded engine."""


@dataclass(frozen=True)
class Window:
    """A token attends to the last `size` slots up to its own (sliding), or to those of its chunk of `size` slots."""

    size: int
    chunked: bool = False

    def first(self, slots: Slots) -> Slots:
        """The first slot that the token at a slot attends to; negative where a sliding window holds all slots."""
        return slots // self.size * self.size if self.chunked else slots - self.size + 1


@dataclass(frozen=True)
class ModelMask:
    """What a network's layers get as their attention mask in a packed pass; None: they attend to all slots."""

    window: Window | None

    def __getitem__(self, _: Any) -> ModelMask:
        """Raise UnsupportedAttention: a network that changes its masks cannot be packed."""
        raise UnsupportedAttention("it changes its attention masks")


def model_mask(
    *,
    mask_function: Callable[..., Tensor],
    local_size: int | None = None,
    use_vmap: bool = False,
    device: Any = "cpu",
    **_: Any,
) -> ModelMask:
    """The window of the mask that transformers would build, by its function of slots; for packed passes.

    Raises UnsupportedAttention for a mask that is more than causal with at most one window.
    """
    if not use_vmap:  # otherwise the network adds a function of its own
        size = local_size or 2
        keys_K = torch.tensor([0, 1, size - 1, size, size + 1, 2 * size - 1, 2 * size], device=device)
        slots_Q1 = keys_K[2:, None]
        zero = torch.zeros((), dtype=torch.long, device=device)
        seen_QK = mask_function(zero, zero, slots_Q1, keys_K)
        for window in [None] if local_size is None else [Window(size), Window(size, chunked=True)]:
            first_Q1 = slots_Q1 * 0 if window is None else window.first(slots_Q1)
            if torch.equal(seen_QK, (keys_K <= slots_Q1) & (keys_K >= first_Q1)):
                return ModelMask(window)
    raise UnsupportedAttention("its attention mask is custom code")


@contextmanager
def narrowed(network: PreTrainedModel, size: int) -> Iterator[None]:
    """Inside the block windows hold at most `size` tokens, so that a short text is longer than a window.

    The same for the number of slots over which Llama 4 keeps its attention's temperature. The caller holds the
    model's lock.
    """
    parts = [(module, vars(module)) for module in network.modules()]
    configs = {id(config): config for _, fields in parts if (config := fields.get("config")) is not None}
    text = network.config.get_text_config(decoder=True)
    owners = [*parts, *((config, vars(config)) for config in {**configs, id(text): text}.values())]
    wide = [
        (owner, name, fields[name])
        for owner, fields in owners
        for name in (*WINDOW_SIZES, "floor_scale")
        if isinstance(fields.get(name), int) and fields[name] > size
    ]
    try:
        for owner, name, _ in wide:
            setattr(owner, name, size)
        yield
    finally:
        for owner, name, value in wide:
            setattr(owner, name, value)
