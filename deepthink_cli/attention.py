"""Attention of many rows over one memory that is never copied: [memory ; own tokens], merged by log-sum-exp.

Registered with transformers under a name of its own; a model uses it only inside `over_memory`. What its
tokens reach is not handed through the model, so that a network need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from deepthink_cli.memory import Memory
from deepthink_cli.packing import Block

_NAME = "deepthink_over_memory"
_flash_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_efficient_cuda = torch.ops.aten._scaled_dot_product_efficient_attention


Kept = dict[int, tuple[Tensor, Tensor]]  # a pass's own keys and values (kv_heads, T, head_dim) in float32, by layer


@dataclass(frozen=True)
class Reach:
    """What neighbouring blocks of a pass attend to: all of the past, one memory behind the other, and their own rows.

    Only tokens `read` (M,) of the blocks are read off in the end, so that in the last layer no other one needs
    the past; None: all may be.
    """

    past: tuple[Memory, ...]
    blocks: tuple[Block, ...]
    read: Tensor | None = None

    def of(self, tokens: Tensor) -> Tensor:
        """The part of a pass (1, heads, T, ...) that the blocks take up."""
        last = self.blocks[-1]
        return tokens[:, :, self.blocks[0].start : last.start + last.rows * last.size]

    def layer(self, number: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (1, kv_heads, L, head_dim) of the past in one layer; copied only where it is in parts."""
        if not self.past:
            return key[:, :, :0], value[:, :, :0]
        keys = [memory.keys[number].to(key) for memory in self.past]
        values = [memory.values[number].to(value) for memory in self.past]
        if len(self.past) == 1:
            return keys[0][None], values[0][None]
        return torch.cat(keys, 1)[None], torch.cat(values, 1)[None]

    def places(self, number: int) -> Tensor | None:
        """The tokens that need the past in a layer; None: all."""
        return self.read if self.past and number == len(self.past[0].keys) - 1 else None


_given: ContextVar[tuple[Sequence[Reach], Kept | None]] = ContextVar("given")


@contextmanager
def over_memory(network: PreTrainedModel, reaches: Sequence[Reach], kept: Kept | None = None) -> Iterator[None]:
    """The network's tokens attend to `reaches` here, and to nothing else; their keys and values go to `kept`."""
    config = network.config.get_text_config(decoder=True)
    before, given = config._attn_implementation, _given.set((reaches, kept))
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _given.reset(given)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention (1, T, heads, d) of queries (1, heads, T, d) over what they reach (Eq. 3 and 6).

    softmax([s_m ; s_o]) [V_m ; V_o] is w out_o + (1 - w) out_m with w = sigmoid(lse_o - lse_m).
    """
    (reaches, kept), layer = _given.get(), cast(int, module.layer_idx)
    if kept is not None:
        # A copy even in float32: these may be views of something larger.
        kept[layer] = (key[0].to(torch.float32, copy=True), value[0].to(torch.float32, copy=True))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    parts = [
        _over_past(reach.of(query), *reach.layer(layer, key, value), reach.places(layer), scale, softcap)
        for reach in reaches
    ]
    out, lse = parts[0] if len(parts) == 1 else (torch.cat(both, 2) for both in zip(*parts, strict=True))
    for block in (block for reach in reaches for block in reach.blocks):
        mask = None if block.mask is None else block.mask.to(query.device)
        own, own_lse = _attention(block.of(query), block.of(key), block.of(value), mask, mask is None, scale, softcap)
        weight = torch.sigmoid(own_lse - block.of(lse))[..., None].to(own.dtype)
        block.of(out).lerp_(own, weight)
    return out.transpose(1, 2), None


def _over_past(
    query: Tensor, key: Tensor, value: Tensor, places: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention to the past of all tokens, or of those at `places` alone: zeros for the others."""
    if places is None:
        return _attention(query, key, value, None, False, scale, softcap)
    places = places.to(query.device)
    found, found_lse = _attention(query[:, :, places], key, value, None, False, scale, softcap)
    out = found.new_zeros((*query.shape[:3], found.shape[3])).index_copy_(2, places, found)
    return out, found_lse.new_zeros(query.shape[:3]).index_copy_(2, places, found_lse)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Outputs (rows, heads, T, d) and their log-sum-exp (rows, heads, T), by the fastest kernel that gives both."""
    plain = softcap is None and key.shape[2] > 0 and key.shape[-1] == value.shape[-1]
    if plain and query.device.type == "cpu":
        out, lse = _flash_cpu(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
        return out, lse
    if plain and query.device.type == "cuda" and mask is None and query.shape[-1] % 8 == 0:
        return _by_efficient_kernel(query, key, value, causal, scale)
    return _by_products(query, key, value, mask, causal, scale, softcap)


def _by_efficient_kernel(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    if causal:  # grouped heads cannot be folded into one causal sequence
        key, value = (tensor.repeat_interleave(query.shape[1] // key.shape[1], 1) for tensor in (key, value))
    folded = _folded(query, key.shape[1])
    out, lse = _efficient_cuda(folded, key, value, None, True, 0.0, causal, scale=scale)[:2]
    # The kernel pads the log-sum-exp to a multiple of its tile.
    return out.reshape_as(query), lse[..., : folded.shape[2]].reshape(query.shape[:3])


def _by_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    scores = (_folded(query, key.shape[1]) @ key.transpose(2, 3)).float() * scale
    scores = scores.view(*query.shape[:3], key.shape[2])  # (rows, heads, T, keys)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if causal:
        mask = torch.full(scores.shape[2:], -torch.inf, device=scores.device).triu(1)
    if mask is not None:
        scores = scores + mask
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp().to(value.dtype)
    return (_folded(weights, key.shape[1]) @ value).view(*query.shape[:3], value.shape[3]), lse


def _folded(tensor: Tensor, groups: int) -> Tensor:
    """(rows, heads, T, n) as (rows, groups, heads / groups * T, n): grouped heads share keys that are never copied."""
    rows, heads, length, size = tensor.shape
    return tensor.reshape(rows, groups, heads // groups * length, size)


AttentionInterface.register(_NAME, attend)
