"""The sizes of a memory and of a model, determined before the weights are loaded."""

from __future__ import annotations

from copy import deepcopy

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PretrainedConfig, PreTrainedModel

from deepthink_cli.memory import from_cache
from deepthink_cli.model.families import cached_values


def memory_width(config: PretrainedConfig) -> int:
    """The number of values that one token adds to the memory: keys and values of every layer and head that stores them.

    Determined by running the architecture without weights, since layers may share keys and values, or differ in heads
    and sizes; computed from the configuration if that fails.
    """
    try:
        return _read_without_weights(config)
    except Exception:  # architectures raise any error on tensors without data
        return cached_values(config.get_text_config(decoder=True))


def parameter_count(config: PretrainedConfig) -> int | None:
    """The number of parameters; None for an architecture that cannot be built without weights."""
    try:
        return sum(parameter.numel() for parameter in _without_weights(config).parameters())
    except Exception:  # architectures raise any error on tensors without data
        return None


def _without_weights(config: PretrainedConfig) -> PreTrainedModel:
    """A network whose tensors have shapes but no data."""
    with torch.device("meta"):
        # Every other implementation chooses experts by values, which these tensors do not have.
        network: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            deepcopy(config), attn_implementation="eager", experts_implementation="batched_mm", trust_remote_code=False
        )
    return network


@torch.inference_mode()
def _read_without_weights(config: PretrainedConfig) -> int:
    """Read one token with a network without data; a hundred layers take a second."""
    network = _without_weights(config)
    network.train(False)
    cache, body = DynamicCache(), network.base_model
    body(input_ids=torch.zeros((1, 1), dtype=torch.long, device="meta"), past_key_values=cache, use_cache=True)
    memory = from_cache(cache, 1)
    return sum(tensor.numel() for tensor in (*memory.keys, *memory.values))
