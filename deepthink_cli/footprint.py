"""What one token adds to a memory, found before the weights are loaded."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PretrainedConfig, PreTrainedModel

from deepthink_cli.memory import from_cache


def memory_width(config: PretrainedConfig) -> int:
    """Numbers that one token adds to the memory: keys and values of every layer and head that stores its own.

    The architecture itself is asked: layers may share keys and values, or differ in heads and sizes. Told from the
    configuration where it cannot run without numbers.
    """
    try:
        return _read_without_numbers(config)
    except Exception:  # whatever one of hundreds of architectures does with a tensor that has a shape and no numbers
        return _from_fields(config)


@torch.inference_mode()
def _read_without_numbers(config: PretrainedConfig) -> int:
    """Read one token with a network whose tensors have shapes alone; a hundred layers take a second."""
    with torch.device("meta"):
        # The experts that are asked for follow from numbers in every other implementation.
        network: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            deepcopy(config), attn_implementation="eager", experts_implementation="batched_mm", trust_remote_code=False
        )
    network.train(False)
    cache, body = DynamicCache(), network.base_model
    body(input_ids=torch.zeros((1, 1), dtype=torch.long, device="meta"), past_key_values=cache, use_cache=True)
    memory = from_cache(cache, 1)
    return sum(tensor.numel() for tensor in (*memory.keys, *memory.values))


def _from_fields(config: PretrainedConfig) -> int:
    text: Any = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    if getattr(text, "kv_lora_rank", None):  # DeepSeek caches what keys and values are made of
        return int(text.num_hidden_layers * (text.kv_lora_rank + text.qk_rope_head_dim))
    shared = getattr(text, "num_key_value_heads", None) or getattr(text, "num_kv_heads", None) or heads
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        shared = 1  # Falcon 7B, StarCoder
    return int(2 * text.num_hidden_layers * shared * size)
