"""Kernels of attention that also return the log-sum-exp, and which of them a device has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor

_KERNELS = {
    "cpu": "_scaled_dot_product_flash_attention_for_cpu",
    "cuda": "_scaled_dot_product_efficient_attention",
}


@dataclass(frozen=True)
class Attention:
    """A layer's attention with its log-sum-exp: softmax(scale q k) v, or of softcap tanh(scale q k / softcap).

    `any_length` allows what `takes_any_length` must have confirmed: one call for sequences of any lengths.
    """

    scale: float
    softcap: float | None = None
    any_length: bool = False

    def __call__(
        self,
        query_RHTD: Tensor,
        key_RGLD: Tensor,
        value_RGLD: Tensor,
        mask_R1TL: Tensor | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """out_RHTD and its log-sum-exp lse_RHT, by the fastest kernel that returns both."""
        if self.any_length and mask_R1TL is None and not causal and len(query_RHTD) == 1:
            return self._over_one(query_RHTD, key_RGLD, value_RGLD)
        plain, device = self.softcap is None and key_RGLD.shape[-1] == value_RGLD.shape[-1], query_RHTD.device.type
        kernel = _kernel(device) if plain else None
        if kernel is None or key_RGLD.shape[2] == 0:
            return _by_products(query_RHTD, key_RGLD, value_RGLD, mask_R1TL, causal, self.scale, self.softcap)
        if device == "cpu":
            out_RHTD, lse_RHT = kernel(
                query_RHTD, key_RGLD, value_RGLD, 0.0, causal, attn_mask=mask_R1TL, scale=self.scale
            )
            return out_RHTD, lse_RHT
        if mask_R1TL is None and query_RHTD.shape[-1] % 8 == 0:
            return _by_efficient_kernel(kernel, query_RHTD, key_RGLD, value_RGLD, causal, self.scale)
        return _by_products(query_RHTD, key_RGLD, value_RGLD, mask_R1TL, causal, self.scale, self.softcap)

    def over_lengths(
        self, query_THD: Tensor, key_KGD: Tensor, value_KGD: Tensor, queries: Lengths, keys: Lengths, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """out_THD and lse_HT of concatenated sequences, each over its own keys, in one call.

        If `causal`, the last query of a sequence attends to all of its keys and each earlier one to one key fewer.
        """
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        out_THD, lse_HT = varlen_attn(
            query_THD,
            key_KGD,
            value_KGD,
            queries.bounds_N,
            keys.bounds_N,
            queries.most,
            keys.most,
            return_aux=AuxRequest(lse=True),
            scale=self.scale,
            window_size=(-1, 0) if causal else (-1, -1),
            enable_gqa=True,
        )
        return out_THD, lse_HT

    def _over_one(self, query_1HTD: Tensor, key_1GLD: Tensor, value_1GLD: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys = (Lengths.of_one(tensor.shape[2], tensor.device) for tensor in (query_1HTD, key_1GLD))
        query_THD, key_LGD, value_LGD = (tensor[0].transpose(0, 1) for tensor in (query_1HTD, key_1GLD, value_1GLD))
        out_THD, lse_HT = self.over_lengths(query_THD, key_LGD, value_LGD, queries, keys, causal=False)
        return out_THD.transpose(0, 1)[None], lse_HT[None]


@dataclass(frozen=True)
class Lengths:
    """Lengths of concatenated sequences: `bounds_N` (int32) are their first tokens and the end, `most` the longest."""

    bounds_N: Tensor
    most: int

    @classmethod
    def of_one(cls, length: int, device: torch.device) -> Lengths:
        """One sequence of at least one token, whose bounds are made on the device, not sent to it."""
        return cls(torch.arange(0, length + 1, length, dtype=torch.int32, device=device), length)


def takes_any_length(query: Tensor, key: Tensor, value: Tensor, softcap: float | None) -> bool:
    """Whether `over_lengths` computes this attention: FlashAttention-2, in half precision on a GPU from Ampere on."""
    size = query.shape[-1]
    return (
        softcap is None
        and query.dtype in (torch.float16, torch.bfloat16)
        and size == key.shape[-1] == value.shape[-1] <= 256
        and size % 8 == 0
        and has_varlen(query.device)
    )


@cache
def has_varlen(device: torch.device) -> bool:
    """Whether torch has one call for sequences of any lengths on this device."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    from torch.nn.attention.varlen import varlen_attn

    return "enable_gqa" in signature(varlen_attn).parameters  # torch 2.10 and 2.11 have it without


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
