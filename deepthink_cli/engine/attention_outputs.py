"""What the attention of every layer adds to the hidden states, read and changed at tokens of a pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

# A layer's number, its attention, and the last module of that, as in `layers.0.self_attn.o_proj`.
_PROJECTION = re.compile(r"(?:.*\.)?\d+\.(?:\w*att\w*\.)+(?:o_proj|c_proj|out_proj|dense|Wo)")


@contextmanager
def adding(network: PreTrainedModel, places_P: Tensor, added: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Inside the block, layer l adds `added[l]`, (W,) or (P, W), to its attention's output at tokens `places_P`.

    The output is that of the attention's last projection, before it is added to the hidden states. Places are indices
    of tokens in a pass, counted row by row. Yields a list that has the changed outputs (P, W) of each layer, in order,
    after the pass. Raises InputError, naming the network, unless it has such a projection in every layer and a vector
    for each.
    """
    projections, outputs = output_projections(network), list[Tensor]()
    if len(added) != len(projections):
        raise InputError(f"{len(added)} vectors, {type(network).__name__} has {len(projections)} layers")

    def change(vectors: Tensor, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        changed = output.clone(memory_format=torch.contiguous_format)
        flat = changed.view(-1, changed.shape[-1])
        places = places_P.to(flat.device)
        flat[places] += vectors.to(flat)
        outputs.append(flat[places])
        return changed

    with ExitStack() as stack:
        for projection, vectors in zip(projections, added, strict=True):
            stack.callback(projection.register_forward_hook(partial(change, vectors)).remove)
        yield outputs


def output_projections(network: PreTrainedModel) -> list[nn.Module]:
    """The last projection of each layer's attention, in order; raises InputError if a layer has none that is known."""
    found = [module for name, module in network.base_model.named_modules() if _PROJECTION.fullmatch(name)]
    layers = network.config.get_text_config(decoder=True).num_hidden_layers
    if len(found) != layers:
        raise InputError(
            f"{type(network).__name__}: {len(found)} of {layers} layers have an attention whose output is known; "
            "vectors cannot be added there; use a model of another architecture"
        )
    return found
