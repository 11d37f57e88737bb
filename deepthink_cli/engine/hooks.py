"""Changes of a network's modules during a pass: feed-forward layers and activations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers.activations import NewGELUActivation

if TYPE_CHECKING:
    from torch import Tensor


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


# Names of a block's first and last module.
_BLOCKS = (("mlp", "mlp"), ("fc1", "fc2"))


@contextmanager
def last_feedforward_at(places_M: Tensor, network: nn.Module) -> Iterator[None]:
    """The last feed-forward block gets only tokens `places_M` of a pass, and outputs zeros for all others.

    The block must process every token independently, as all known blocks do. A network without a known block is
    unchanged.
    """
    block = _last_block(network)
    if block is None:
        yield
        return
    shapes: list[tuple[int, ...]] = []

    def narrowed(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, *others = arguments
        shapes.append(tuple(hidden.shape[:-1]))
        read_MW = hidden.flatten(0, -2)[places_M.to(hidden.device)]
        return (read_MW.view(*(1,) * (hidden.dim() - 2), *read_MW.shape), *others)

    def widened(_: nn.Module, __: tuple[Tensor, ...], output: Any) -> Any:
        if isinstance(output, tuple):  # followed by a router's scores
            return (widened(_, __, output[0]), *output[1:])
        shape = shapes.pop()
        full = output.new_zeros((*shape, output.shape[-1]))
        full.flatten(0, -2)[places_M.to(output.device)] = output.flatten(0, -2)
        return full

    enter, leave = block
    with ExitStack() as stack:
        stack.callback(enter.register_forward_pre_hook(narrowed).remove)
        stack.callback(leave.register_forward_hook(widened).remove)
        yield


def _last_block(network: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    paths = [(name.split("."), module) for name, module in network.named_modules()]
    # Only modules of the layer itself: experts have modules with the same names, which get a part of the tokens.
    last = {path[-1]: module for path, module in paths if len(path) > 1 and path[-2].isdigit()}
    return next(((last[enter], last[leave]) for enter, leave in _BLOCKS if enter in last and leave in last), None)
