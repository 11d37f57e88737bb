"""A memory as a prefix adapter of PEFT, written without PEFT (docs/elsewhere.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from deepthink_cli.errors import InputError
from deepthink_cli.events import Warn
from deepthink_cli.export import Export
from deepthink_cli.io.atomic import making_folder
from deepthink_cli.memory import PARTS, Memory

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def export(export: Export) -> None:
    """Write a memory's iteration as a prefix adapter, and warn of models that PEFT loads in another way."""
    memory, path = export.memory, export.header.path
    write_peft(memory, export.output, path)
    model = memory.origin.model
    if model.gguf is not None:
        text = f"{model.id} is a GGUF file: load it with gguf_file=, dequantized, and give the adapter to that model"
        export.tell(Warn(text))
    if model.quantize is not None:
        export.tell(Warn(f"{path} was made in {model.quantize}: load the model in the same way, or scores differ"))


def write_peft(memory: Memory, directory: str | Path, name: str = "this memory") -> None:
    """Write a memory as a prefix adapter: `adapter_config.json` and `adapter_model.safetensors`.

    The folder is complete or absent. Raises InputError, prefixed with `name`, for a memory that PEFT cannot hold and
    for a folder that holds files, and DeepThinkError if the write fails.
    """
    check_exportable(memory, name)
    heads, length, size = memory.keys[0].shape
    model = memory.origin.model
    config = {
        "base_model_name_or_path": model.id,
        "revision": model.revision,
        "peft_type": "PREFIX_TUNING",  # known to every version of PEFT that reads safetensors
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "prefix_projection": False,
        "num_virtual_tokens": length,
        "num_layers": len(memory.keys),
        "num_attention_heads": heads,
        "token_dim": heads * size,
        "encoder_hidden_size": heads * size,
        "num_transformer_submodules": 1,
    }
    layers = zip(memory.keys, memory.values, strict=True)
    parts = [tensor.cpu().transpose(0, 1) for layer in layers for tensor in layer]  # (L, kv_heads, head_dim)
    # Each token's keys and values by layer: (L, layers * 2 * kv_heads * head_dim).
    tensors = {"prompt_embeddings": torch.stack(parts, dim=1).flatten(1)}
    with making_folder(directory) as temporary:
        text = json.dumps(config, indent=2, sort_keys=True)
        (temporary / CONFIG).write_text(text + "\n", encoding="utf-8")
        (temporary / WEIGHTS).write_bytes(safetensors.torch.save(tensors, metadata={"format": "pt"}))


def check_exportable(memory: Memory, name: str) -> None:
    """Raise InputError unless PEFT can hold the memory and applies it to the model that made it."""
    like, architecture = memory.keys[0], memory.origin.model.architecture
    for part in PARTS:
        for layer, tensor in enumerate(getattr(memory, part)):
            if tensor.shape != like.shape:
                raise InputError(
                    f"{name}: {architecture} has keys and values of several shapes (layer 0's keys are "
                    f"{_shape(like)}, layer {layer}'s {part} {_shape(tensor)}), and a prefix adapter holds one shape; "
                    "use deepthink predict"
                )


def _shape(tensor: Tensor) -> str:
    heads, _, size = tensor.shape
    return f"{heads} x {size}"
