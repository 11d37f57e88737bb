"""Attention of many rows over one memory that is never copied: [memory ; own tokens], combined by log-sum-exp.

Registered with transformers under its own name; a model uses it only inside `over_memory`. What the tokens
attend to is kept in a context variable and not passed through the model, whose code is unchanged.
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
    "dropout",
    "sliding_window",
    "position_ids",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
}


_OWN_CODE = "its attention is custom code that does not use the attention interface of transformers"


class UnsupportedAttention(Exception):
    """The network's attention cannot be packed, for the reason in the message; use the padded engine."""


Kept = dict[int, tuple[Tensor, Tensor]]  # a pass's own keys_GTD and values_GTD in float32, by layer


@dataclass(frozen=True)
class Reach:
    """What consecutive blocks of a pass attend to: all of the past (its memories concatenated), and their own rows.

    Only the final states of tokens `read_M` are used, so in the last layer the other tokens do not attend
    to the past; None means all tokens.
    """

    past: tuple[Memory, ...]
    blocks: tuple[Block, ...]
    read_M: Tensor | None = None

    def of(self, tokens: Tensor) -> Tensor:
        """The blocks' part of a tensor of the pass, of shape (1, H, T, ...)."""
        last = self.blocks[-1]
        return tokens[:, :, self.blocks[0].start : last.start + last.rows * last.size]

    def layer(self, number: int, key_1GTD: Tensor, value_1GTD: Tensor) -> tuple[Tensor, Tensor]:
        """key_1GLD and value_1GLD of the past in one layer; copied only if the past has several parts."""
        if not self.past:
            return key_1GTD[:, :, :0], value_1GTD[:, :, :0]
        if number >= len(self.past[0].keys):
            raise UnsupportedAttention("some of its layers attend to the keys and values of other layers")
        keys_GLD = [memory.keys[number].to(key_1GTD) for memory in self.past]
        values_GLD = [memory.values[number].to(value_1GTD) for memory in self.past]
        if (keys_GLD[0].shape[::2], values_GLD[0].shape[::2]) != (key_1GTD.shape[1::2], value_1GTD.shape[1::2]):
            raise UnsupportedAttention("its cache does not contain the keys and values that its attention uses")
        if len(self.past) == 1:
            return keys_GLD[0][None], values_GLD[0][None]
        return torch.cat(keys_GLD, 1)[None], torch.cat(values_GLD, 1)[None]

    def places(self, number: int) -> Tensor | None:
        """The tokens that attend to the past in a layer; None means all."""
        return self.read_M if self.past and number == len(self.past[0].keys) - 1 else None


@dataclass(frozen=True)
class _Pass:
    """What the tokens of a pass attend to, the store for their keys and values, and the layers that have run so far."""

    reaches: Sequence[Reach]
    kept: Kept | None
    layers: set[int]


_current: ContextVar[_Pass | None] = ContextVar("current", default=None)


@contextmanager
def over_memory(network: PreTrainedModel, reaches: Sequence[Reach], kept: Kept | None = None) -> Iterator[None]:
    """Inside the block the network attends to `reaches` and nothing else; new keys and values are stored in `kept`.

    The caller holds the model's lock: the network's configuration is changed until the block ends. Raises
    UnsupportedAttention if no layer of the network uses this attention.
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
    query_1HTD: Tensor,
    key_1GTD: Tensor,
    value_1GTD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention output, of shape (1, T, H, D) (Eq. 3 and 6).

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
        # A copy even in float32: these may be views of a larger tensor.
        current.kept[layer] = (key_1GTD[0].to(torch.float32, copy=True), value_1GTD[0].to(torch.float32, copy=True))
    scale = query_1HTD.shape[-1] ** -0.5 if scaling is None else scaling
    parts = [
        _over_past(reach.of(query_1HTD), *reach.layer(layer, key_1GTD, value_1GTD), reach.places(layer), scale, softcap)
        for reach in reaches
    ]
    out_1HTD, lse_1HT = parts[0] if len(parts) == 1 else (torch.cat(both, 2) for both in zip(*parts, strict=True))
    for block in (block for reach in reaches for block in reach.blocks):
        mask_R1SS = None if block.mask_R1SS is None else block.mask_R1SS.to(query_1HTD.device)
        own_RHSD, own_lse_RHS = _attention(
            block.of(query_1HTD), block.of(key_1GTD), block.of(value_1GTD), mask_R1SS, mask_R1SS is None, scale, softcap
        )
        weight_RHS1 = torch.sigmoid(own_lse_RHS - block.of(lse_1HT))[..., None].to(own_RHSD.dtype)
        block.of(out_1HTD).lerp_(own_RHSD, weight_RHS1)
    return out_1HTD.transpose(1, 2), None


def _refuse_unknown(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name == "is_causal" and value is False:
            raise UnsupportedAttention("its attention is not causal")
        if name not in _IRRELEVANT and name != "is_causal" and value is not None:
            raise UnsupportedAttention(f"its attention takes {name}, which the packed engine does not compute")


def _over_past(
    query_1HTD: Tensor,
    key_1GLD: Tensor,
    value_1GLD: Tensor,
    places_M: Tensor | None,
    scale: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """Attention of all tokens to the past, or only of those at `places`, with zeros for the others."""
    if places_M is None:
        return _attention(query_1HTD, key_1GLD, value_1GLD, None, False, scale, softcap)
    places_M = places_M.to(query_1HTD.device)
    read_1HMD, lse_1HM = _attention(query_1HTD[:, :, places_M], key_1GLD, value_1GLD, None, False, scale, softcap)
    out_1HTD = read_1HMD.new_zeros((*query_1HTD.shape[:3], read_1HMD.shape[3])).index_copy_(2, places_M, read_1HMD)
    return out_1HTD, lse_1HM.new_zeros(query_1HTD.shape[:3]).index_copy_(2, places_M, lse_1HM)


def _attention(
    query_RHTD: Tensor,
    key_RGLD: Tensor,
    value_RGLD: Tensor,
    mask_R1TL: Tensor | None,
    causal: bool,
    scale: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """out_RHTD and its log-sum-exp lse_RHT, by the fastest kernel that returns both."""
    kernel = _kernel(query_RHTD.device.type) if softcap is None and key_RGLD.shape[-1] == value_RGLD.shape[-1] else None
    if kernel is None or key_RGLD.shape[2] == 0:
        return _by_products(query_RHTD, key_RGLD, value_RGLD, mask_R1TL, causal, scale, softcap)
    if query_RHTD.device.type == "cpu":
        out_RHTD, lse_RHT = kernel(query_RHTD, key_RGLD, value_RGLD, 0.0, causal, attn_mask=mask_R1TL, scale=scale)
        return out_RHTD, lse_RHT
    if mask_R1TL is None and query_RHTD.shape[-1] % 8 == 0:
        return _by_efficient_kernel(kernel, query_RHTD, key_RGLD, value_RGLD, causal, scale)
    return _by_products(query_RHTD, key_RGLD, value_RGLD, mask_R1TL, causal, scale, softcap)


def has_kernel(device: str) -> bool:
    """Whether this device type has an attention kernel, which never materializes the (T, L) scores."""
    return _kernel(device) is not None


def _kernel(device: str) -> Callable[..., Any] | None:
    """The attention kernel of a device that also returns the log-sum-exp; None if this build of torch has none.

    These operations are not part of torch's public interface: a build without them is slower but works.
    """
    return getattr(torch.ops.aten, _KERNELS.get(device, ""), None)


def _by_efficient_kernel(
    kernel: Callable[..., Any], query_RHTD: Tensor, key_RGLD: Tensor, value_RGLD: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    if causal:  # grouped heads cannot be folded into one causal sequence
        key_RGLD, value_RGLD = (
            tensor.repeat_interleave(query_RHTD.shape[1] // key_RGLD.shape[1], 1) for tensor in (key_RGLD, value_RGLD)
        )
    folded_RGFD = _folded(query_RHTD, key_RGLD.shape[1])
    out_RGFD, lse_RGF = kernel(folded_RGFD, key_RGLD, value_RGLD, None, True, 0.0, causal, scale=scale)[:2]
    # The kernel pads the log-sum-exp to a multiple of its tile.
    return out_RGFD.reshape_as(query_RHTD), lse_RGF[..., : folded_RGFD.shape[2]].reshape(query_RHTD.shape[:3])


def _by_products(
    query_RHTD: Tensor,
    key_RGLD: Tensor,
    value_RGLD: Tensor,
    mask_R1TL: Tensor | None,
    causal: bool,
    scale: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    scores_RHTL = (_folded(query_RHTD, key_RGLD.shape[1]) @ key_RGLD.transpose(2, 3)).float() * scale
    scores_RHTL = scores_RHTL.view(*query_RHTD.shape[:3], key_RGLD.shape[2])
    if softcap is not None:
        scores_RHTL = torch.tanh(scores_RHTL / softcap) * softcap
    if causal:
        mask_R1TL = torch.full(scores_RHTL.shape[2:], -torch.inf, device=scores_RHTL.device).triu(1)
    if mask_R1TL is not None:
        scores_RHTL = scores_RHTL + mask_R1TL
    lse_RHT = scores_RHTL.logsumexp(-1)
    weights_RHTL = (scores_RHTL - lse_RHT[..., None]).exp().to(value_RGLD.dtype)
    return (_folded(weights_RHTL, key_RGLD.shape[1]) @ value_RGLD).view(
        *query_RHTD.shape[:3], value_RGLD.shape[3]
    ), lse_RHT


def _folded(tensor: Tensor, groups: int) -> Tensor:
    """(R, H, T, n) as (R, G, F, n) with F = H / G * T: grouped heads share keys that are never copied."""
    rows, heads, length, size = tensor.shape
    return tensor.reshape(rows, groups, heads // groups * length, size)


AttentionInterface.register(_NAME, attend)
