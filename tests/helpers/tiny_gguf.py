"""Tiny models as GGUF files, as converters write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}  # where GGUF names differ from those of transformers


def write_gguf(
    model: Path,
    path: Path,
    kind: str = "F32",
    fields: Mapping[str, Any] | None = None,
    tensors: Mapping[str, numpy.ndarray] | None = None,
    architecture: str = "",
) -> Path:
    """Write the model of a folder to a GGUF file; matrices of whole blocks in the type `kind`, the others in float32.

    `fields` are further values by the name of the writer's method, or replace those written by default (None: none);
    `tensors` are further tensors, `architecture` another name than that of the model.
    """
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    network = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    kept = ARCHITECTURES.get(network.config.model_type, network.config.model_type)
    writer = gguf.GGUFWriter(path, architecture or kept)
    for name, value in {**_fields(network, tokenizer), **(fields or {})}.items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    titles = _titles(network, kept)
    stored = {titles[name]: _stored(titles[name], weight.numpy(), network) for name, weight in _weights(network)}
    for name, tensor in {**stored, **(tensors or {})}.items():
        blocks = tensor.ndim == 2 and tensor.shape[-1] % 32 == 0 and kind != "F32"
        number = gguf.GGMLQuantizationType[kind] if blocks else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(tensor, number) if blocks else tensor.astype(numpy.float32)
        writer.add_tensor(name, data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _titles(network: PreTrainedModel, architecture: str) -> dict[str, str]:
    """The names of a network's weights in GGUF, by their names in transformers."""
    import gguf

    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    titles, names = {}, gguf.get_tensor_name_map(number, network.config.num_hidden_layers)
    for name, _ in _weights(network):
        module, _, part = name.rpartition(".")
        titles[name] = f"{names.get_name(module)}.{part}"
    return titles


def _weights(network: PreTrainedModel) -> list[tuple[str, Any]]:
    tied = set(network._tied_weights_keys or ()) if network.config.tie_word_embeddings else set()
    return [(name, weight) for name, weight in network.state_dict().items() if name not in tied]


def _stored(title: str, weight: numpy.ndarray, network: PreTrainedModel) -> numpy.ndarray:
    """A weight as converters store it: in pairs of rows (Llama), norms increased by 1 (Gemma), transposed (GPT-2)."""
    config, kind = network.config, network.config.model_type
    if kind in ("llama", "mistral") and (".attn_q." in title or ".attn_k." in title):
        return _pairs(weight, config.num_attention_heads if ".attn_q." in title else config.num_key_value_heads)
    if kind.startswith("gemma") and title.endswith("norm.weight"):
        return weight + 1
    if kind == "gpt2" and weight.ndim == 2 and title.startswith("blk."):
        return weight.T
    return weight


def _pairs(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """GGUF rotates neighbouring rows of a head, transformers its two halves."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _fields(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    config, words = network.config, tokenizer.get_vocab()
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    fields = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", 4 * config.hidden_size),
        "head_count": config.num_attention_heads,
        "vocab_size": len(words),
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "gpt-2",
        "token_list": sorted(words, key=words.__getitem__),
        "token_merges": [" ".join(pair) for pair in merges],
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    if config.model_type == "gpt2":
        return {**fields, "layer_norm_eps": config.layer_norm_epsilon}
    rotary = config.rope_parameters
    fields |= {
        "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": rotary.get("full_attention", rotary)["rope_theta"],
    }
    if config.model_type.startswith(("gemma", "qwen3")):
        fields |= {"key_length": config.head_dim, "value_length": config.head_dim}
    if config.model_type.startswith("gemma"):
        fields |= {"sliding_window": config.sliding_window}
    if config.model_type == "gemma2":
        fields |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return fields
