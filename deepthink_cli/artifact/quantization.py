"""Keys and values in 8 or 4 bits, in the layout of KIVI (Liu et al. 2024, arXiv:2402.02750).

Keys are quantized per channel, because some channels are much larger than the others for every token; values per token,
because attention sums them over tokens. Ranges are affine: they begin at any number. They move keys and values of
SmolLM2-135M-Instruct by 0.24 % and 0.50 % in 8 bits, and by 3.92 % and 8.20 % in 4 bits. In the same bytes, ranges
around zero with groups of 16 move them by 0.35 % and 0.51 %, and by 6.22 % and 9.00 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.provenance import Quantized

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32  # numbers that share a range, as in KIVI
_AXES = {"keys": 1, "values": 2}  # axes of (heads, L, size) along which groups lie
_SMALLEST = torch.finfo(torch.float32).tiny  # the scale of a constant group, whose codes are all 0


@dataclass(frozen=True)
class Codes:
    """A quantized tensor (heads, L, size): number = low + scale * code.

    `codes` is uint8 (heads, L, size). At 4 bits it is (heads, ceil(L / 2), size): tokens 2i and 2i + 1 are the low and
    the high half of a byte, and the last high half is 0 if L is odd. `low` and `scale` are bfloat16, with the range of
    float32 in half the bytes: (heads, groups, size) for keys, (heads, L, groups) for values.
    """

    codes: Tensor
    low: Tensor
    scale: Tensor


def quantized(tensor: Tensor, part: str, form: Quantized) -> Codes:
    """The codes of a float32 tensor (heads, L, size), the `part` `keys` or `values` of a layer.

    `low` is rounded down and `scale` up, so that the codes reach all numbers: the result of `dequantized` differs by at
    most half the scale of a group, and by rounding in float32. Raises DeepThinkError for numbers that are too large for
    bfloat16.
    """
    axis, most, exact = _AXES[part], 2**form.bits - 1, tensor.double()
    groups = torch.split(exact, form.group, axis)
    low = _rounded(torch.cat([group.amin(axis, keepdim=True) for group in groups], axis), up=False)
    high = torch.cat([group.amax(axis, keepdim=True) for group in groups], axis)
    scale = _rounded(((high - low.double()) / most).clamp_min(_SMALLEST), up=True)
    offset = exact - _spread(low, tensor, axis, form).double()
    codes = (offset / _spread(scale, tensor, axis, form).double()).round().clamp(0, most).to(torch.uint8)
    stored = Codes(codes if form.bits == 8 else _packed(codes), low, scale)
    if not dequantized(stored, part, tensor.shape[1], form).isfinite().all():
        raise DeepThinkError(f"{form.dtype} cannot store {part} as large as {tensor.abs().max():.3g}; keep float32")
    return stored


def dequantized(stored: Codes, part: str, length: int, form: Quantized) -> Tensor:
    """The float32 tensor (heads, L, size) of codes, L = `length`; computed in float64, then rounded."""
    codes = stored.codes if form.bits == 8 else _unpacked(stored.codes)[:, :length]
    low, scale = (_spread(each, codes, _AXES[part], form).double() for each in (stored.low, stored.scale))
    return (low + scale * codes).float()


def check_codes(stored: Codes, length: int, form: Quantized, name: str) -> None:
    """Raise InputError for scales that are not finite and positive, and for codes of tokens after the last one."""
    if not (stored.scale.isfinite().all() and (stored.scale > 0).all()):
        raise InputError(f"{name}.scale has values that are not finite and positive")
    if not stored.low.isfinite().all():
        raise InputError(f"{name}.low has values that are not finite")
    if form.bits == 4 and length % 2 and (stored.codes[:, -1] >> 4).any():
        raise InputError(f"{name} has codes for more than {length} tokens")


def _spread(ranges: Tensor, like: Tensor, axis: int, form: Quantized) -> Tensor:
    """Repeat every group's value for each of its numbers: (heads, L, size)."""
    return ranges.index_select(axis, torch.arange(like.shape[axis]) // form.group)


def _rounded(numbers: Tensor, up: bool) -> Tensor:
    """The closest bfloat16 numbers that are not smaller; without `up`, not larger."""
    nearest = numbers.to(torch.bfloat16)
    beyond = nearest.double() < numbers if up else nearest.double() > numbers
    limit = torch.full_like(nearest, torch.inf if up else -torch.inf)
    return torch.where(beyond, torch.nextafter(nearest, limit), nearest)


def _packed(codes: Tensor) -> Tensor:
    """Two tokens a byte: (heads, L, size) to (heads, ceil(L / 2), size)."""
    packed, odd = codes[:, 0::2].clone(), codes[:, 1::2]
    packed[:, : odd.shape[1]] |= odd << 4
    return packed


def _unpacked(packed: Tensor) -> Tensor:
    """The codes of both halves of every byte: (heads, 2 * ceil(L / 2), size)."""
    return torch.stack((packed & 15, packed >> 4), dim=2).flatten(1, 2)
