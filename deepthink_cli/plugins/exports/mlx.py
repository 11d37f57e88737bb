"""A memory as a prompt cache of mlx-lm, written without MLX (docs/elsewhere.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from deepthink_cli.artifact.opening import find_its_model, open_memory
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Warn
from deepthink_cli.export import Export
from deepthink_cli.io.atomic import replacing
from deepthink_cli.io.text import canonical_json
from deepthink_cli.memory import Memory
from deepthink_cli.model.families import longrope_positions, windowed_layers
from deepthink_cli.model.options import POCKET
from deepthink_cli.provenance import ModelIdentity

# Random models of these give the same scores in mlx-lm 0.32.2 within 1e-3, with their keys and values in `KVCache`.
ARCHITECTURES = (
    *("CohereForCausalLM", "Ernie4_5ForCausalLM", "Glm4ForCausalLM", "GraniteForCausalLM", "HeliumForCausalLM"),
    *("HunYuanDenseV1ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
    *("NemotronForCausalLM", "Olmo2ForCausalLM", "Phi3ForCausalLM", "PhiForCausalLM", "Qwen2ForCausalLM"),
    *("Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "SeedOssForCausalLM", "SmolLM3ForCausalLM"),
    *("StableLmForCausalLM", "Starcoder2ForCausalLM"),
)


def export(export: Export) -> None:
    """Write a memory's iteration as a prompt cache, in the dtype of the model's options (by default the memory's).

    Raises InputError for a model that mlx-lm does not load, or computes or caches in another way.
    """
    opened = open_memory(export.header.path)
    check_model(opened.provenance.model, opened.name)
    spec = find_its_model(opened, export.model, export.tell)
    check_config(spec.config.get_text_config(decoder=True), f"{opened.name}: {spec.id}")
    stored, _ = spec.config.get_config_dict(spec.source, revision=spec.revision, local_files_only=True)
    write_prompt_cache(export.memory, spec.dtype, opened.provenance.model.id, export.output)
    if missing := unread_rotation(stored):
        text = f"config.json of {spec.id} states rotary factors in rope_parameters alone, where mlx-lm 0.32 does not"
        export.tell(Warn(f"{text} read most of them: add {missing} to it where mlx-lm runs, or scores differ"))
    if Path(opened.provenance.model.id).is_absolute():
        text = f"mlx_lm.generate loads the model from {opened.provenance.model.id}, and refuses another path"
        export.tell(Note(f"{text}; load_prompt_cache does not compare it"))


def check_model(model: ModelIdentity, name: str) -> None:
    """Raise InputError unless mlx-lm loads the model that made the memory, and caches the same keys and values."""
    if model.architecture not in ARCHITECTURES:
        raise InputError(
            f"{name}: made by a model of {model.architecture}, whose cache in mlx-lm differs or was not compared "
            "(docs/elsewhere.md lists those that were); use deepthink predict"
        )
    way = "save the model in a folder of safetensors, and run deepthink think again with it"
    if model.id == POCKET:
        raise InputError(f"{name}: made by {POCKET}, which mlx-lm does not load; think with a model that it loads")
    if model.gguf is not None:
        raise InputError(f"{name}: made by the GGUF file {model.gguf}, which mlx-lm does not load; {way}")
    if model.quantize is not None:
        raise InputError(f"{name}: made in {model.quantize}, in which mlx-lm does not load models; think without it")


def check_config(text: Any, name: str) -> None:
    """Raise InputError for attention windows, and for rotary factors that depend on the number of tokens."""
    if window := windowed_layers(text):
        raise InputError(
            f"{name} has attention windows of {window[0]} tokens, which mlx-lm ignores or keeps in caches that drop "
            "tokens; use deepthink predict"
        )
    if longrope_positions(text) is not None:
        raise InputError(f"{name} has LongRoPE, whose short factors mlx-lm does not use; use deepthink predict")


def unread_rotation(stored: Mapping[str, Any]) -> str:
    """The fields in JSON that a configuration of transformers 5 lacks for mlx-lm; empty if it has them."""
    rotation = stored.get("rope_parameters") or {}
    fields = {name: rotation[name] for name in ("rope_theta", "partial_rotary_factor") if name in rotation}
    if rotation.get("rope_type", "default") != "default":
        fields["rope_scaling"] = rotation
    return json.dumps({name: value for name, value in fields.items() if name not in stored})[1:-1]


def write_prompt_cache(memory: Memory, dtype: torch.dtype, model: str, output: str | Path) -> None:
    """Write what `mlx_lm.models.cache.save_prompt_cache` writes of one `KVCache` for each layer; the write is atomic.

    Layer i is `i.0` and `i.1`, keys and values (1, kv_heads, L, head_dim) in `dtype`, and `i.2`, the offset L: both the
    number of keys and the position of the next token. The metadata say how `mlx_lm.generate` is to load the model and
    its tokenizer: without a BOS token of its own, which the memory has. Raises InputError for values that `dtype`
    cannot hold, and DeepThinkError if the write fails. Source: mlx_lm/models/cache.py of mlx-lm 0.32.
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
