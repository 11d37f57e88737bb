"""Attention kernels that also return the log-sum-exp, by device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
    """(R, H, T, n) as (R, G, F, n) with F = H / G * T: grouped heads share their keys, which are not copied."""
    rows, heads, length, size = tensor.shape
    return tensor.reshape(rows, groups, heads // groups * length, size)
