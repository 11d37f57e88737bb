"""Float32 matrix products by oneDNN, about twice as fast as torch's usual products on AMD with AVX-512.

There torch multiplies float32 matrices with MKL, whose kernels use vectors of half the width on processors that are not
Intel's. oneDNN, which also comes with torch, uses the whole width. Half-precision products go through it anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from torch import Tensor

FEWEST = 2**16  # elements of a weight; products with smaller weights gain little
_ROUNDING = 1e-5  # relative difference: both kernels sum the same float32 products, in another order
_CPUINFO = Path("/proc/cpuinfo")


class _Reordered:
    """A copy of a float32 weight in the order of elements that oneDNN needs; copies of its layer share it."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)

    def __deepcopy__(self, _: object) -> _Reordered:
        return self

    def product(self, hidden: Tensor, bias: Tensor | None) -> Tensor:
        """The product of hidden states (..., in) with the weight (out, in), plus the bias."""
        return cast("Tensor", torch.ops.mkldnn._linear_pointwise(hidden, self.weight, bias, "none", [], ""))


class _Linear(nn.Linear):
    reordered: _Reordered

    def forward(self, hidden: Tensor) -> Tensor:
        return self.reordered.product(hidden, self.bias) if _suits(hidden) else super().forward(hidden)


class _Conv1D(Conv1D):
    reordered: _Reordered

    def forward(self, hidden: Tensor) -> Tensor:
        if not _suits(hidden):
            return super().forward(hidden)  # type: ignore[no-any-return, no-untyped-call]
        return self.reordered.product(hidden, self.bias)


def linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, by oneDNN where that is faster: the weight is brought into its order each time, and not kept."""
    if not (weight.is_cpu and _suits(hidden) and usual_products_are_slow()):
        return F.linear(hidden, weight, bias)
    return cast("Tensor", torch.ops.mkldnn._linear_pointwise(hidden, weight, bias, "none", [], ""))


def usual_products_are_slow() -> bool:
    """Whether torch multiplies float32 matrices with kernels of half the processor's width."""
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # not part of torch's public interface
        and _is_amd(_CPUINFO)
    )


@cache
def _is_amd(cpuinfo: Path) -> bool:
    try:
        return "AuthenticAMD" in cpuinfo.read_text()
    except OSError:  # not Linux
        return False


def reorder_weights(network: nn.Module, most: int, fewest: int = FEWEST) -> int:
    """Keep copies of the float32 weights of linear layers for oneDNN, if all take at most `most` bytes; returns bytes.

    Weights of fewer than `fewest` elements are left out. The weights must not change afterwards. Passes with gradients,
    passes over one token, and layers whose product by oneDNN differs use the usual products.
    """
    layers = [layer for layer in _linear_layers(network) if layer.weight.numel() >= fewest]
    size = sum(layer.weight.nbytes for layer in layers)
    if size > most:
        return 0
    return sum(layer.weight.nbytes for layer in layers if _reorder(layer))


def _linear_layers(network: nn.Module) -> Iterator[nn.Linear | Conv1D]:
    """The linear layers whose weights are on the processor in float32, and stay there."""
    for module in network.modules():
        if not isinstance(module, nn.Linear | Conv1D) or type(module) not in (nn.Linear, Conv1D):
            continue  # a subclass may compute something else
        weight, moved = module.weight, hasattr(module, "_hf_hook")  # accelerate moves weights
        if weight.device == torch.device("cpu") and weight.dtype == torch.float32 and not moved:
            yield module


@torch.no_grad()
def _reorder(layer: nn.Linear | Conv1D) -> bool:
    weight = layer.weight.detach()
    reordered = _Reordered(weight if isinstance(layer, nn.Linear) else weight.T)
    inputs = weight.shape[1 if isinstance(layer, nn.Linear) else 0]
    hidden = torch.cos(torch.arange(4.0 * inputs)).view(4, inputs)
    expected = layer(hidden)
    difference = torch.linalg.vector_norm(reordered.product(hidden, layer.bias) - expected)
    if not difference <= _ROUNDING * torch.linalg.vector_norm(expected):  # NaN too
        return False
    layer.__class__ = _Linear if isinstance(layer, nn.Linear) else _Conv1D
    cast("_Linear | _Conv1D", layer).reordered = reordered
    return True


def _suits(hidden: Tensor) -> bool:
    """Whether oneDNN's product is possible for these hidden states (..., in), and faster."""
    several = hidden.numel() > hidden.shape[-1]
    return several and hidden.dtype == torch.float32 and not torch.is_grad_enabled()
