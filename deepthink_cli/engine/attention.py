"""Attention of many rows over one memory that is never copied: [memory ; own tokens], merged by log-sum-exp.

Registered with transformers under a name of its own; a model uses it only inside `over_memory`. What its
tokens reach is not handed through the model, so that a network need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from deepthink_cli.engine.packing import Block
from deepthink_cli.errors import ran_out_of_memory
from deepthink_cli.memory import Memory

_NAME = "deepthink_over_memory"
_KERNELS = {
    "cpu": "_scaled_dot_product_flash_attention_for_cpu",
    "cuda": "_scaled_dot_product_efficient_attention",
}
# Attention arguments without effect here: the blocks of a pass define what every token sees, inputs never exceed a
# sliding window (limits.py), and dropout is for training only.
_IRRELEVANT = {
    "dropout", "sliding_window", "position_ids", "use_cache", "output_attentions", "output_hidden_states",
    "output_router_logits",
}  # fmt: skip


_OWN_CODE = "its attention is custom code that does not use the attention interface of transformers"


class UnsupportedAttention(Exception):
    """Unsupported attention: use the padded engine. The text says why."""


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
        if (keys[0].shape[::2], values[0].shape[::2]) != (key.shape[1::2], value.shape[1::2]):
            raise UnsupportedAttention("its cache does not hold the keys and values that its attention reads")
        if len(self.past) == 1:
            return keys[0][None], values[0][None]
        return torch.cat(keys, 1)[None], torch.cat(values, 1)[None]

    def places(self, number: int) -> Tensor | None:
        """The tokens that need the past in a layer; None: all."""
        return self.read if self.past and number == len(self.past[0].keys) - 1 else None


@dataclass(frozen=True)
class _Pass:
    """What the tokens of a pass attend to, where their keys and values go, and the layers that have attended so far."""

    reaches: Sequence[Reach]
    kept: Kept | None
    layers: set[int]


_current: ContextVar[_Pass | None] = ContextVar("current", default=None)


@contextmanager
def over_memory(network: PreTrainedModel, reaches: Sequence[Reach], kept: Kept | None = None) -> Iterator[None]:
    """Inside the block the network's tokens attend to `reaches` and nothing else; their keys and values go to `kept`.

    The caller holds the model's lock: the network's configuration is changed until the block ends. Raises
    UnsupportedAttention where no layer of the network uses this attention.
    """
    config = network.config.get_text_config(decoder=True)
    before, layers = config._attn_implementation, set[int]()
    token = _current.set(_Pass(reaches, kept, layers))
    try:
        config._attn_implementation = _NAME
        yield
    except Exception as error:
        if layers or ran_out_of_memory(error):
            raise
        raise UnsupportedAttention(_OWN_CODE) from error
    finally:
        config._attn_implementation = before
        _current.reset(token)
    if not layers:
        raise UnsupportedAttention(_OWN_CODE)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention (1, T, heads, d) of queries (1, heads, T, d) over what they reach (Eq. 3 and 6).

    softmax([s_m ; s_o]) [V_m ; V_o] is w out_o + (1 - w) out_m with w = sigmoid(lse_o - lse_m). Raises
    UnsupportedAttention for arguments that change this formula, such as attention sinks.
    """
    current, layer = _current.get(), cast(int, module.layer_idx)
    if current is None:
        raise RuntimeError("another thread is scoring with this network; run it while holding LanguageModel.lock")
    current.layers.add(layer)
    _refuse_unknown(others)
    reaches = current.reaches
    if current.kept is not None:
        # A copy even in float32: these may be views of something larger.
        current.kept[layer] = (key[0].to(torch.float32, copy=True), value[0].to(torch.float32, copy=True))
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


def _refuse_unknown(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name == "is_causal" and value is False:
            raise UnsupportedAttention("its attention is not causal")
        if name not in _IRRELEVANT and name != "is_causal" and value is not None:
            raise UnsupportedAttention(f"its attention takes {name}, which the packed engine does not compute")


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
    kernel = _kernel(query.device.type) if softcap is None and key.shape[-1] == value.shape[-1] else None
    if kernel is None or key.shape[2] == 0:
        return _by_products(query, key, value, mask, causal, scale, softcap)
    if query.device.type == "cpu":
        out, lse = kernel(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
        return out, lse
    if mask is None and query.shape[-1] % 8 == 0:
        return _by_efficient_kernel(kernel, query, key, value, causal, scale)
    return _by_products(query, key, value, mask, causal, scale, softcap)


def has_kernel(device: str) -> bool:
    """Whether this kind of device has an attention kernel, which never stores the scores of all tokens and keys."""
    return _kernel(device) is not None


def _kernel(device: str) -> Callable[..., Any] | None:
    """The attention kernel of a device that also returns the log-sum-exp; None where this build of torch has none.

    These operations are not part of torch's public interface: a build without them is slower but works.
    """
    return getattr(torch.ops.aten, _KERNELS.get(device, ""), None)


def _by_efficient_kernel(
    kernel: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    if causal:  # grouped heads cannot be folded into one causal sequence
        key, value = (tensor.repeat_interleave(query.shape[1] // key.shape[1], 1) for tensor in (key, value))
    folded = _folded(query, key.shape[1])
    out, lse = kernel(folded, key, value, None, True, 0.0, causal, scale=scale)[:2]
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
