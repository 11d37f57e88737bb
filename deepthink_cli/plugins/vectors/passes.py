"""Passes of a network with vectors added to the outputs of attention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.errors import InputError, option

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from deepthink_cli.memory import Memory


def read_adding(
    engine: Engine, token_ids: Sequence[int], places: Sequence[int], added: Sequence[Tensor] | None
) -> tuple[Memory, Tensor]:
    """The present of tokens at positions 0 onward, with vectors added to each layer's attention output.

    `added[l]` (P, W) is added to the attention output of layer l at the P tokens `places`; None adds nothing. Also
    returns the sums (layers, P, W), in float32, on the CPU. Raises as `Engine.read`, and InputError for an engine that
    runs no network, or if the network's attention is not known.
    """
    if not isinstance(engine, BatchedEngine):
        raise InputError(f"{engine.description}: adds no vectors; use {option('engine')} packed or padded")
    model, places_P = engine.model, torch.tensor(list(places), device=engine.model.device)
    with torch.inference_mode(), model.lock, adding(model.network, places_P, added) as outputs:
        present = model.read(token_ids)
        return present, torch.stack([each.float().cpu() for each in outputs])


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
