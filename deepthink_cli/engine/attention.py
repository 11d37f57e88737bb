"""Attention of the packed engine: queries side by side after one memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from deepthink_cli.engine.kernels import Attention, PaddedBlock
from deepthink_cli.engine.packing import Block
from deepthink_cli.engine.reach import ModelMask, Part, Reach, Span, UnsupportedAttention, model_mask, of_blocks
from deepthink_cli.errors import ran_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "deepthink_over_memory"
# Attention arguments without effect here: the blocks of a pass and the layer's mask define the keys of a token, and
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


Kept = dict[int, tuple[Tensor, Tensor]]  # the new keys_GTD and values_GTD of a pass in float32, by layer


@dataclass(frozen=True)
class _Plan:
    """The keys that the tokens of a pass attend to in a layer: spans of the past, and their own rows."""

    spans: Sequence[tuple[Reach, Span]]
    blocks: Sequence[Block]
    own: Sequence[PaddedBlock]


@dataclass(frozen=True)
class _Pass:
    """The reaches of a pass, the store for its keys and values, and the layers that have run so far."""

    reaches: Sequence[Reach]
    kept: Kept | None
    layers: set[int] = field(default_factory=set)
    planned: dict[tuple[int | None, bool, torch.device], _Plan] = field(default_factory=dict)

    def plan(self, layer: int, window: int | None, like: Tensor) -> _Plan:
        """The plan of a layer with this window; masks have the dtype and the device of `like`."""
        last = [reach.is_last(layer) for reach in self.reaches]
        key = window, any(last), like.device
        if key not in self.planned:
            spans = [
                (reach, span)
                for reach, is_last in zip(self.reaches, last, strict=True)
                for span in reach.spans(window, is_last, like)
            ]
            blocks = [block for _, span in spans for block in span.blocks]
            plans = (plan for other, plan in self.planned.items() if other[2] == like.device)
            own = next((plan.own for plan in plans if plan.blocks == blocks), None)
            self.planned[key] = _Plan(spans, blocks, own or [PaddedBlock.of(block, like) for block in blocks])
        return self.planned[key]


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
    current, layer = _current.get(), cast("int", module.layer_idx)
    if current is None:
        raise RuntimeError("another thread is scoring with this network; run it while holding LanguageModel.lock")
    current.layers.add(layer)
    refuse_unknown(others)
    if isinstance(attention_mask, Tensor):
        raise UnsupportedAttention("its attention mask is custom code")
    if getattr(module, "attn_temperature_tuning", False):  # Llama 4
        raise UnsupportedAttention("the temperature of its attention depends on a token's place")
    if current.kept is not None:
        # A copy even in float32: these may be views of a larger tensor.
        current.kept[layer] = (key_1GTD[0].to(torch.float32, copy=True), value_1GTD[0].to(torch.float32, copy=True))
    scale = query_1HTD.shape[-1] ** -0.5 if scaling is None else scaling
    attention = Attention(scale, softcap)
    plan = current.plan(layer, attention_mask.window if attention_mask else None, query_1HTD)
    earlier = [
        _over_earlier(
            of_blocks(span.blocks, query_1HTD),
            [(part, *reach.earlier(layer, part, key_1GTD, value_1GTD)) for part in span.parts],
            value_1GTD.shape[-1],
            attention,
        )
        for reach, span in plan.spans
    ]
    out_1HTD, lse_1HT = _together(earlier, 2)
    query_THD, key_TGD, value_TGD = (tensor[0].transpose(0, 1) for tensor in (query_1HTD, key_1GTD, value_1GTD))
    own_THD, own_lse_TH = _together([block(query_THD, key_TGD, value_TGD, attention) for block in plan.own], 0)
    out_THD, lse_TH = out_1HTD[0].transpose(0, 1), lse_1HT[0].T
    out_THD.lerp_(own_THD, torch.sigmoid(own_lse_TH - lse_TH)[..., None].to(own_THD.dtype))
    if s_aux is not None:
        total_TH = torch.logaddexp(own_lse_TH, lse_TH)
        out_THD.mul_(torch.sigmoid(total_TH - s_aux)[..., None].to(out_THD.dtype))
    return out_THD[None].contiguous(), None


def refuse_unknown(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name == "is_causal" and value is False:
            raise UnsupportedAttention("its attention is not causal")
        if name not in _IRRELEVANT and name != "is_causal" and value is not None:
            raise UnsupportedAttention(f"its attention takes {name}, which the packed engine does not compute")


def _over_earlier(
    query_1HTD: Tensor, parts: Sequence[tuple[Part, Tensor, Tensor]], size: int, attention: Attention
) -> tuple[Tensor, Tensor]:
    """Attention of a span's tokens to the parts of their past, with values of this size."""
    if len(parts) == 1 and parts[0][0].places_M is None:
        part, key_1GLD, value_1GLD = parts[0]
        return attention(query_1HTD, key_1GLD, value_1GLD, _on(query_1HTD, part.mask_11ML))
    out_1HTD = query_1HTD.new_zeros((*query_1HTD.shape[:3], size))
    lse_1HT = torch.full(query_1HTD.shape[:3], _UNSEEN, device=query_1HTD.device)
    for part, key_1GLD, value_1GLD in parts:
        places_M = slice(None) if part.places_M is None else part.places_M.to(query_1HTD.device)
        part_out_1HMD, part_lse_1HM = attention(
            query_1HTD[:, :, places_M], key_1GLD, value_1GLD, _on(query_1HTD, part.mask_11ML)
        )
        lse_1HM = lse_1HT[:, :, places_M]
        weight_1HM1 = torch.sigmoid(part_lse_1HM - lse_1HM)[..., None].to(out_1HTD.dtype)
        out_1HTD[:, :, places_M] = out_1HTD[:, :, places_M].lerp(part_out_1HMD, weight_1HM1)
        lse_1HT[:, :, places_M] = torch.logaddexp(lse_1HM, part_lse_1HM)
    return out_1HTD, lse_1HT


def _together(parts: Sequence[tuple[Tensor, Tensor]], dim: int) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps of consecutive tokens, which are dimension `dim`, as of all tokens."""
    if len(parts) == 1:
        return parts[0]
    outs, lses = zip(*parts, strict=True)
    return torch.cat(outs, dim), torch.cat(lses, dim)


def _on(tensor: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask on the device of a tensor."""
    return None if mask is None else mask.to(tensor.device)


AttentionInterface.register(_NAME, attend)
AttentionMaskInterface.register(_NAME, model_mask)
