"""Attention that also returns the log-sum-exp: kernels by device, and the rows of a pass to themselves, padded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from deepthink_cli.engine.packing import Block, part_of
from deepthink_cli.engine.reach import masked

_KERNELS = {"cpu": "_scaled_dot_product_flash_attention_for_cpu", "cuda": "_scaled_dot_product_efficient_attention"}


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
