"""Attention of the packed engine: queries side by side after one memory, by kernels that return the log-sum-exp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from deepthink_cli.engine.packing import Block, part_of
from deepthink_cli.engine.reach import ModelMask, Part, Reach, Span, UnsupportedAttention, masked, model_mask, of_blocks
from deepthink_cli.errors import ran_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_KERNELS = {
    "cpu": "_scaled_dot_product_flash_attention_for_cpu",
    "cuda": "_scaled_dot_product_efficient_attention",
}


@dataclass(frozen=True)
class Attention:
    """A layer's attention with its log-sum-exp: softmax(s) v, s = scale q k or softcap tanh(scale q k / softcap)."""

    scale: float
    softcap: float | None = None

    def __call__(
        self,
        query_RHTD: Tensor,
        key_RGLD: Tensor,
        value_RGLD: Tensor,
        mask_R1TL: Tensor | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """out_RHTD and its log-sum-exp lse_RHT, by the fastest kernel that returns both."""
        plain, device = self.softcap is None and key_RGLD.shape[-1] == value_RGLD.shape[-1], query_RHTD.device.type
        kernel = kernel_of(device) if plain and key_RGLD.shape[2] else None
        if kernel is not None and device == "cpu":
            out_RHTD, lse_RHT = kernel(
                query_RHTD, key_RGLD, value_RGLD, 0.0, causal, attn_mask=mask_R1TL, scale=self.scale
            )
            return out_RHTD, lse_RHT
        if kernel is not None and mask_R1TL is None and query_RHTD.shape[-1] % 8 == 0:
            return self.by_efficient_kernel(kernel, query_RHTD, key_RGLD, value_RGLD, causal)
        return self.by_products(query_RHTD, key_RGLD, value_RGLD, mask_R1TL, causal)

    def by_efficient_kernel(
        self, kernel: Callable[..., Any], query_RHTD: Tensor, key_RGLD: Tensor, value_RGLD: Tensor, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """The result of a CUDA kernel."""
        if causal:  # grouped heads cannot be folded into one causal sequence
            repeats = query_RHTD.shape[1] // key_RGLD.shape[1]
            key_RGLD, value_RGLD = (tensor.repeat_interleave(repeats, 1) for tensor in (key_RGLD, value_RGLD))
        folded_RGFD = _folded(query_RHTD, key_RGLD.shape[1])
        out_RGFD, lse_RGF = kernel(folded_RGFD, key_RGLD, value_RGLD, None, True, 0.0, causal, scale=self.scale)[:2]
        # The kernel pads the log-sum-exp to a multiple of its tile.
        return out_RGFD.reshape_as(query_RHTD), lse_RGF[..., : folded_RGFD.shape[2]].reshape(query_RHTD.shape[:3])

    def by_products(
        self, query_RHTD: Tensor, key_RGLD: Tensor, value_RGLD: Tensor, mask_R1TL: Tensor | None, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """The result of matrix products, which hold all scores in memory."""
        scores_RHTL = (_folded(query_RHTD, key_RGLD.shape[1]) @ key_RGLD.transpose(2, 3)).float() * self.scale
        scores_RHTL = scores_RHTL.view(*query_RHTD.shape[:3], key_RGLD.shape[2])
        if self.softcap is not None:
            scores_RHTL = torch.tanh(scores_RHTL / self.softcap) * self.softcap
        if causal:
            mask_R1TL = torch.full(scores_RHTL.shape[2:], -torch.inf, device=scores_RHTL.device).triu(1)
        if mask_R1TL is not None:
            scores_RHTL = scores_RHTL + mask_R1TL
        lse_RHT = scores_RHTL.logsumexp(-1)
        weights_RHTL = (scores_RHTL - lse_RHT[..., None]).exp().to(value_RGLD.dtype)
        out_RGFD = _folded(weights_RHTL, key_RGLD.shape[1]) @ value_RGLD
        return out_RGFD.view(*query_RHTD.shape[:3], value_RGLD.shape[3]), lse_RHT


def kernel_of(device: str) -> Callable[..., Any] | None:
    """The attention kernel of a device that also returns the log-sum-exp; None if this build of torch has none.

    It never materializes the (T, L) scores. These operations are not part of torch's public interface: a build without
    them is slower but works.
    """
    return getattr(torch.ops.aten, _KERNELS.get(device, ""), None)


def _folded(tensor: Tensor, groups: int) -> Tensor:
    """(R, H, T, n) as (R, G, F, n) with F = H / G * T: grouped heads share their keys, which are not copied."""
    rows, heads, length, size = tensor.shape
    return tensor.reshape(rows, groups, heads // groups * length, size)


@dataclass(frozen=True)
class PaddedBlock:
    """Rows of a block with indices of their tokens: R rows, padded to S tokens, from token `start` to `stop` - 1.

    `places_P`, P = R S, are the tokens of the padded rows; `kept_T` are the places of the real tokens among them. Both
    are None if all rows are equally long. `mask_R1SS` is added to attention scores; None if a causal mask is enough.
    """

    start: int
    stop: int
    rows: int
    places_P: Tensor | None
    kept_T: Tensor | None
    mask_R1SS: Tensor | None

    @classmethod
    def of(cls, block: Block, like: Tensor) -> PaddedBlock:
        """The block with the device and the dtype of `like`."""
        hidden_RSS, lengths = block.hidden_RSS(), [*map(len, block.depths)]
        mask_R1SS = None if hidden_RSS is None else masked(hidden_RSS[:, None], like)
        places_P = kept_T = None
        if min(lengths) < block.size:
            starts_R, lengths_R = torch.tensor([*accumulate(lengths[:-1], initial=block.start)]), torch.tensor(lengths)
            order_S = torch.arange(block.size)
            places_RS = starts_R[:, None] + torch.minimum(order_S, lengths_R[:, None] - 1)
            places_P = places_RS.flatten().to(like.device)
            kept_T = (order_S < lengths_R[:, None]).flatten().nonzero()[:, 0].to(like.device)
        return cls(block.start, block.stop, len(lengths), places_P, kept_T, mask_R1SS)

    def __call__(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, attention: Attention
    ) -> tuple[Tensor, Tensor]:
        """out_THD and its log-sum-exp lse_TH of the rows' attention to themselves, for the tokens of a pass.

        It is one call of a kernel; the output of padding is dropped.
        """
        query_RHSD, key_RGSD, value_RGSD = map(self._rows, (query_THD, key_TGD, value_TGD))
        out_RHSD, lse_RHS = attention(query_RHSD, key_RGSD, value_RGSD, self.mask_R1SS, self.mask_R1SS is None)
        out_PHD, lse_PH = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (out_RHSD, lse_RHS))
        if self.kept_T is None:
            return out_PHD, lse_PH
        return out_PHD.index_select(0, self.kept_T), lse_PH.index_select(0, self.kept_T)

    def _rows(self, states_TnD: Tensor) -> Tensor:
        """The padded rows (R, n, S, D); a view if they are equally long."""
        if self.places_P is None:
            part_PnD = part_of(states_TnD, 0, self.start, self.stop)
        else:
            part_PnD = states_TnD.index_select(0, self.places_P)
        return part_PnD.view(self.rows, -1, *part_PnD.shape[1:]).transpose(1, 2)


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
