"""Attention of the packed engine: queries side by side after one memory, its temperature, and its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from deepthink_cli.engine.packing import Block
from deepthink_cli.engine.reach import ModelMask, Part, Reach, Span, UnsupportedAttention, Window, model_mask
from deepthink_cli.errors import ran_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_KERNELS = {
    "cpu": "_scaled_dot_product_flash_attention_for_cpu",
    "cuda": "_scaled_dot_product_efficient_attention",
}


def attention_with_lse(
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


def has_temperature(module: Any) -> bool:
    """Whether an attention module multiplies queries by a factor that depends on their slot."""
    return getattr(module, "attn_temperature_tuning", False) and not getattr(module, "use_rope", True)


def by_slot(module: Any, query_1HTD: Tensor, reaches: Sequence[Reach]) -> Tensor:
    """The queries with the factors of their slots instead of those of their places in a packed pass."""
    slots_T = torch.tensor([slot for reach in reaches for slot in reach.slots()], device=query_1HTD.device)
    right_T, wrong_T = _factors(module, slots_T), _factors(module, torch.arange(len(slots_T), device=slots_T.device))
    return query_1HTD * (right_T / wrong_T)[:, None].to(query_1HTD.dtype)


def _factors(module: Any, slots_T: Tensor) -> Tensor:
    steps_T = torch.floor((slots_T + 1.0) / module.floor_scale)
    return torch.log1p(steps_T) * float(module.attn_scale) + 1.0


_NAME = "deepthink_over_memory"
# Attention arguments without effect here: the blocks of a pass and the layer's mask define what every token sees, and
# dropout is for training only.
_IRRELEVANT = {
    "dropout",
    "sliding_window",
    "position_ids",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
}
_UNSEEN = -1e30  # the log-sum-exp of no keys: finite, so that differences are numbers


_OWN_CODE = "its attention is custom code that does not use the attention interface of transformers"


Kept = dict[int, tuple[Tensor, Tensor]]  # a pass's own keys_GTD and values_GTD in float32, by layer
Attention = Callable[..., tuple[Tensor, Tensor]]  # out and log-sum-exp of queries, keys, values, a mask and `causal`


@dataclass(frozen=True)
class _Pass:
    """What the tokens of a pass attend to, the store for their keys and values, and the layers that have run so far."""

    reaches: Sequence[Reach]
    kept: Kept | None
    layers: set[int] = field(default_factory=set)
    planned: dict[tuple[int, Window | None, bool], list[Span]] = field(default_factory=dict)

    def spans(self, layer: int, window: Window | None, like: Tensor) -> Iterator[tuple[Reach, Span]]:
        """The spans of every reach in a layer with this window; masks have the dtype and the device of `like`."""
        for number, reach in enumerate(self.reaches):
            key = number, window, reach.is_last(layer)
            if key not in self.planned:
                self.planned[key] = list(reach.spans(window, reach.is_last(layer), like))
            yield from ((reach, span) for span in self.planned[key])


_current: ContextVar[_Pass | None] = ContextVar("current", default=None)


@contextmanager
def over_memory(network: PreTrainedModel, reaches: Sequence[Reach], kept: Kept | None = None) -> Iterator[None]:
    """Inside the block the network attends to `reaches` and nothing else; new keys and values are stored in `kept`.

    The caller holds the model's lock: the network's configuration is changed until the block ends. It gives the
    network an attention mask of ones; without one, transformers would guess sequences from `position_ids`. Raises
    UnsupportedAttention if no layer of the network uses this attention.
    """
    config = network.config.get_text_config(decoder=True)
    before, current = config._attn_implementation, _Pass(reaches, kept)
    token = _current.set(current)
    try:
        config._attn_implementation = _NAME
        yield
    except Exception as error:
        if current.layers or isinstance(error, UnsupportedAttention) or ran_out_of_memory(error):
            raise
        raise UnsupportedAttention(_OWN_CODE) from error
    finally:
        config._attn_implementation = before
        _current.reset(token)
    if not current.layers:
        raise UnsupportedAttention(_OWN_CODE)


def attend(
    module: torch.nn.Module,
    query_1HTD: Tensor,
    key_1GTD: Tensor,
    value_1GTD: Tensor,
    attention_mask: ModelMask | Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention output, of shape (1, T, H, D) (Eq. 3 and 6).

    softmax([s_m ; s_o]) [V_m ; V_o] is w out_o + (1 - w) out_m with w = sigmoid(lse_o - lse_m). An attention sink
    `s_aux` (H,) is one more logit without a value: the output is multiplied by sigmoid(lse - sink). Raises
    UnsupportedAttention for arguments that change this formula.
    """
    current, layer = _current.get(), cast(int, module.layer_idx)
    if current is None:
        raise RuntimeError("another thread is scoring with this network; run it while holding LanguageModel.lock")
    current.layers.add(layer)
    refuse_unknown(others)
    if isinstance(attention_mask, Tensor):
        raise UnsupportedAttention("its attention mask is custom code")
    if current.kept is not None:
        # A copy even in float32: these may be views of a larger tensor.
        current.kept[layer] = (key_1GTD[0].to(torch.float32, copy=True), value_1GTD[0].to(torch.float32, copy=True))
    if has_temperature(module):
        query_1HTD = by_slot(module, query_1HTD, current.reaches)
    scale = query_1HTD.shape[-1] ** -0.5 if scaling is None else scaling
    attention = partial(attention_with_lse, scale=scale, softcap=softcap)
    spans = list(current.spans(layer, attention_mask.window if attention_mask else None, query_1HTD))
    earlier = [
        _over_earlier(
            span.of(query_1HTD),
            [(part, *reach.earlier(layer, part, key_1GTD, value_1GTD)) for part in span.parts],
            value_1GTD.shape[-1],
            attention,
        )
        for reach, span in spans
    ]
    out_1HTD, lse_1HT = earlier[0] if len(earlier) == 1 else (torch.cat(both, 2) for both in zip(*earlier, strict=True))
    for block in (block for _, span in spans for block in span.blocks):
        _add_own(block, (query_1HTD, key_1GTD, value_1GTD), out_1HTD, lse_1HT, attention, s_aux)
    return out_1HTD.transpose(1, 2).contiguous(), None


def refuse_unknown(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name == "is_causal" and value is False:
            raise UnsupportedAttention("its attention is not causal")
        if name not in _IRRELEVANT and name != "is_causal" and value is not None:
            raise UnsupportedAttention(f"its attention takes {name}, which the packed engine does not compute")


def _over_earlier(
    query_1HTD: Tensor, parts: Sequence[tuple[Part, Tensor, Tensor]], size: int, attention: Attention
) -> tuple[Tensor, Tensor]:
    """Attention of a span's tokens to the parts of what precedes them, with values of this size."""
    if len(parts) == 1 and parts[0][0].places_M is None and not parts[0][0].bias:
        part, key_1GLD, value_1GLD = parts[0]
        return attention(query_1HTD, key_1GLD, value_1GLD, _on(query_1HTD, part.mask_11ML), False)
    out_1HTD = query_1HTD.new_zeros((*query_1HTD.shape[:3], size))
    lse_1HT = torch.full(query_1HTD.shape[:3], _UNSEEN, device=query_1HTD.device)
    for part, key_1GLD, value_1GLD in parts:
        places_M = slice(None) if part.places_M is None else part.places_M.to(query_1HTD.device)
        part_out_1HMD, part_lse_1HM = attention(
            query_1HTD[:, :, places_M], key_1GLD, value_1GLD, _on(query_1HTD, part.mask_11ML), False
        )
        part_lse_1HM, lse_1HM = part_lse_1HM + part.bias, lse_1HT[:, :, places_M]
        weight_1HM1 = torch.sigmoid(part_lse_1HM - lse_1HM)[..., None].to(out_1HTD.dtype)
        out_1HTD[:, :, places_M] = out_1HTD[:, :, places_M].lerp(part_out_1HMD, weight_1HM1)
        lse_1HT[:, :, places_M] = torch.logaddexp(lse_1HM, part_lse_1HM)
    return out_1HTD, lse_1HT


def _add_own(
    block: Block,
    states: tuple[Tensor, Tensor, Tensor],
    out_1HTD: Tensor,
    lse_1HT: Tensor,
    attention: Attention,
    sinks_H: Tensor | None,
) -> None:
    """Add the attention of a block's rows to themselves, given the pass's queries, keys and values, in place."""
    query_RHSD, key_RGSD, value_RGSD = map(block.of, states)
    mask_R1SS = _on(query_RHSD, block.mask_R1SS)
    own_RHSD, own_lse_RHS = attention(query_RHSD, key_RGSD, value_RGSD, mask_R1SS, mask_R1SS is None)
    out_RHSD, lse_RHS = block.of(out_1HTD), block.of(lse_1HT)
    out_RHSD.lerp_(own_RHSD, torch.sigmoid(own_lse_RHS - lse_RHS)[..., None].to(own_RHSD.dtype))
    if sinks_H is not None:
        total_RHS = torch.logaddexp(own_lse_RHS, lse_RHS)
        out_RHSD.mul_(torch.sigmoid(total_RHS - sinks_H[:, None])[..., None].to(out_RHSD.dtype))


def _on(tensor: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask on the device of a tensor."""
    return None if mask is None else mask.to(tensor.device)


AttentionInterface.register(_NAME, attend)
AttentionMaskInterface.register(_NAME, model_mask)
