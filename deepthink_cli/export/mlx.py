"""A memory as a prompt cache of mlx-lm, written without MLX (docs/elsewhere.md)."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch

from deepthink_cli.artifact.opening import find_its_model, open_memory
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note
from deepthink_cli.export.registry import Export
from deepthink_cli.io.atomic import replacing
from deepthink_cli.io.text import canonical_json
from deepthink_cli.memory import Memory
from deepthink_cli.model.families import windowed_layers
from deepthink_cli.model.options import POCKET
from deepthink_cli.provenance import ModelIdentity

ARCHITECTURES = ("LlamaForCausalLM",)


def export(export: Export) -> None:
    """Write a memory's iteration as a prompt cache, in the dtype of the model's options (by default the memory's).

    Raises InputError for a model that mlx-lm does not load, or whose cache it keeps in another way.
    """
    opened = open_memory(export.header.path)
    check_model(opened.provenance.model, opened.name)
    spec = find_its_model(opened, export.model, export.tell)
    if window := windowed_layers(spec.config.get_text_config(decoder=True)):
        raise InputError(
            f"{opened.name}: {spec.id} has attention windows of {window[0]} tokens, for which mlx-lm has caches of its "
            "own that drop tokens; use deepthink predict"
        )
    write_prompt_cache(export.memory, spec.dtype, opened.provenance.model.id, export.output)
    if Path(opened.provenance.model.id).is_absolute():
        text = f"mlx_lm.generate loads the model from {opened.provenance.model.id}, and refuses another path"
        export.tell(Note(f"{text}; load_prompt_cache does not compare it"))


def check_model(model: ModelIdentity, name: str) -> None:
    """Raise InputError unless mlx-lm loads the model that made the memory, and caches the same keys and values."""
    if model.architecture not in ARCHITECTURES:
        raise InputError(
            f"{name}: made by a model of {model.architecture}, whose cache in mlx-lm was not compared; those of "
            f"{', '.join(ARCHITECTURES)} were; use deepthink predict"
        )
    way = "save the model in a folder of safetensors, and run deepthink think again with it"
    if model.id == POCKET:
        raise InputError(f"{name}: made by {POCKET}, which mlx-lm does not load; think with a model that it loads")
    if model.gguf is not None:
        raise InputError(f"{name}: made by the GGUF file {model.gguf}, which mlx-lm does not load; {way}")
    if model.adapter is not None:
        raise InputError(f"{name}: made with {option('adapter')} {model.adapter} merged into the weights; {way}")
    if model.quantize is not None:
        raise InputError(f"{name}: made in {model.quantize}, in which mlx-lm does not load models; think without it")


def write_prompt_cache(memory: Memory, dtype: torch.dtype, model: str, output: str | Path) -> None:
    """Write what `mlx_lm.models.cache.save_prompt_cache` writes of one `KVCache` for each layer; the write is atomic.

    Layer i is `i.0` and `i.1`, keys and values (1, kv_heads, L, head_dim) in `dtype`, and `i.2`, the offset L: the number
    of keys, and the position of the next token. The metadata say how `mlx_lm.generate` is to load the model and its
    tokenizer: without a BOS token of its own, which the memory has. Raises InputError for values that `dtype` cannot
    hold, and DeepThinkError if the write fails. Source: mlx_lm/models/cache.py of mlx-lm 0.32.
    """
    tensors: dict[str, torch.Tensor] = {}
    metadata = {"0.model": model, "0.tokenizer_config": canonical_json({"add_bos_token": False}), "2.0": ""}
    for layer, pair in enumerate(zip(memory.keys, memory.values, strict=True)):
        for place, tensor in enumerate(pair):
            tensors[f"{layer}.{place}"] = tensor.cpu().to(dtype)[None].contiguous()
        tensors[f"{layer}.2"] = torch.tensor(memory.length, dtype=torch.int32)
        metadata |= {f"1.{layer}": "KVCache", f"2.{layer + 1}.0": f"{layer}.2", f"2.{layer + 1}.1": "scalar"}
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise InputError.of("dtype", str(dtype).removeprefix("torch."), "the memory exceeds it; use float32")
    with replacing(output) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors, metadata=metadata))
