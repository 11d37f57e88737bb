"""Replace the tanh form of GELU, eight kernels in transformers (GPT-2, Phi), by a single kernel.

Activation modules are swapped inside a context, so that the network's code is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from transformers.activations import NewGELUActivation


@contextmanager
def fused_activations(network: nn.Module) -> Iterator[None]:
    """Inside the block, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) is one kernel; equal up to rounding."""
    replaced = [
        (module, name, child)
        for module in network.modules()
        for name, child in module.named_children()
        if isinstance(child, NewGELUActivation)
    ]
    fused = nn.GELU(approximate="tanh")
    try:
        for module, name, _ in replaced:
            setattr(module, name, fused)
        yield
    finally:
        for module, name, child in replaced:
            setattr(module, name, child)
