"""The last feed-forward block runs at the tokens that are read off alone: nobody attends to what it makes of others.

Done with the hooks of torch's modules, so that a network need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

# The module that a block's tokens enter by and the one they leave by.
_BLOCKS = (("mlp", "mlp"), ("fc1", "fc2"))


@contextmanager
def last_feedforward_at(places_M: Tensor, network: nn.Module) -> Iterator[None]:
    """The last block of `network` sees tokens `places_M` of a pass, and gives zeros for all others.

    Works where a block makes of every token a tensor of its own, as all known ones do; a network without
    such a block runs as it is.
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

    def widened(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
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
    last = {name.rpartition(".")[2]: module for name, module in network.named_modules()}
    return next(((last[enter], last[leave]) for enter, leave in _BLOCKS if enter in last and leave in last), None)
