"""Hide tokens of a memory from the rows of a pass; all others stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepthink_cli.model.families import has_alibi


@contextmanager
def hiding(network: PreTrainedModel, hidden_RK: Tensor) -> Iterator[Tensor]:
    """The attention mask (R, K) for passes of the network inside the block, whose rows attend to no hidden key.

    BLOOM and Falcon count the distances of ALiBi along this mask: a key that it hides would bring the earlier ones
    nearer. For them it hides nothing, and their layers' own masks do instead. The caller holds the model's lock.
    """
    with ExitStack() as hooks:
        if layers := biased_layers(network):
            hide, hidden_RK = partial(_hide, hidden_RK), torch.zeros_like(hidden_RK)
            for layer in layers:
                hooks.callback(layer.register_forward_pre_hook(hide, with_kwargs=True).remove)
        yield (~hidden_RK).long()


def biased_layers(network: PreTrainedModel) -> list[nn.Module]:
    """The modules that get biases of ALiBi from the network, which computes them from its attention mask."""
    if not has_alibi(network.config.get_text_config(decoder=True)):
        return []
    return [module for module in network.modules() if "alibi" in signature(module.forward).parameters]


def _hide(hidden_RK: Tensor, _: nn.Module, arguments: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Add the hidden keys to the additive mask (R, 1 or H, S, K) that a layer gets."""
    mask: Tensor = named["attention_mask"]
    hidden_R11K = hidden_RK[:, None, None].to(mask.device)
    return arguments, {**named, "attention_mask": mask.masked_fill(hidden_R11K, torch.finfo(mask.dtype).min)}
