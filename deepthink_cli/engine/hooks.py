"""Changes of a network's modules during a pass: attention outputs, feed-forward layers and activations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.activations import NewGELUActivation

from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


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


# A layer's number, its attention, and the attention's last module, as in `layers.0.self_attn.o_proj`.
_PROJECTION = re.compile(r"(?:.*\.)?\d+\.(?:\w*att\w*\.)+(?:o_proj|c_proj|out_proj|dense|Wo)")


@contextmanager
def adding(network: PreTrainedModel, places_P: Tensor, added: Sequence[Tensor] | None) -> Iterator[list[Tensor]]:
    """Inside the block, layer l adds `added[l]`, (W,) or (P, W), to its attention's output at tokens `places_P`.

    The output is the output of the attention's last projection. Places are indices of tokens in a pass, counted row by
    row. Yields a list that holds, after the pass, the outputs (P, W) of each layer, in order, with the added vectors.
    Raises InputError, naming the network, unless each layer has a known projection, and a vector of its width.
    """
    projections = output_projections(network)
    outputs: list[Tensor] = []
    if added is not None and len(added) != len(projections):
        raise InputError(f"{type(network).__name__}: {len(projections)} layers, vectors for {len(added)}")

    def change(vectors: Tensor | None, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        changed = output.clone(memory_format=torch.contiguous_format)
        flat, places = changed.view(-1, changed.shape[-1]), places_P.to(changed.device)
        if vectors is not None:
            if vectors.shape[-1] != flat.shape[-1]:
                raise InputError(f"{type(network).__name__}: width {flat.shape[-1]}, vectors of {vectors.shape[-1]}")
            flat[places] += vectors.to(flat)
        outputs.append(flat[places])
        return changed

    with ExitStack() as stack:
        for projection, vectors in zip(projections, added or repeat(None), strict=False):
            stack.callback(projection.register_forward_hook(partial(change, vectors)).remove)
        yield outputs


def output_projections(network: PreTrainedModel) -> list[nn.Module]:
    """The last projection of each layer's attention, in order; raises InputError if a layer has no known projection."""
    found = [module for name, module in network.base_model.named_modules() if _PROJECTION.fullmatch(name)]
    layers = network.config.get_text_config(decoder=True).num_hidden_layers
    if len(found) != layers:
        raise InputError(
            f"{type(network).__name__}: {len(found)} known output projections of attention in {layers} layers: vectors "
            "cannot be added there; use a model of another architecture"
        )
    return found
