"""Random tiny models of every family the toolkit names, and a tokenizer built in memory."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

import small_models
from helpers.soak import with_soak
from small_models import BOS

TEXT = "Review: a warm and funny film\nSentiment: positive\n\nReview: a dull and lifeless mess\nSentiment: negative\n\n"

_WIDE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_GROUPED = {**_WIDE, "num_key_value_heads": 2, "max_position_embeddings": 512}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": _GPT,
    "opt": {**_WIDE, "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 512},
    "gpt_neo": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 256,
        "max_position_embeddings": 512,
    },
    "gpt_neox": {**_WIDE, "max_position_embeddings": 512},
    "llama": _GROUPED,
    "mistral": {**_GROUPED, "sliding_window": 256},
    "qwen2": _GROUPED,
    "qwen3": {**_GROUPED, "head_dim": 16},
    "gemma2": {**_GROUPED, "head_dim": 16, "sliding_window": 256},
    "gemma3_text": {
        **_GROUPED,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "sliding_window": 256,
        "sliding_window_pattern": 2,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "phi": {**_WIDE, "max_position_embeddings": 512},
    "phi3": _GROUPED,
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512},
    "falcon-alibi": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True},
    "gptj": {**_GPT, "rotary_dim": 4},
    "codegen": {**_GPT, "rotary_dim": 4},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 512},
    "stablelm": _GROUPED,
    "deepseek_v3": {
        **_WIDE,
        "num_key_value_heads": 4,
        "q_lora_rank": 8,
        "kv_lora_rank": 12,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 12,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "max_position_embeddings": 512,
    },
}


# One for each way of attending: `make soak` tries the other families in every test of them.
OF_EACH_KIND = (
    *("gpt2", "opt", "gpt_neo", "gpt_neox", "llama", "qwen3"),
    *("gemma2", "bloom", "falcon", "mpt", "deepseek_v3"),
)
EVERY_FAMILY = with_soak(FAMILIES, OF_EACH_KIND)

_WINDOW = {"sliding_window": 8}
_MIXED = {**_GROUPED, **_WINDOW, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
_GEMMA = {**_MIXED, "vocab_size_per_layer_input": 320, "hidden_size_per_layer_input": 8}

# Attention windows of 8 tokens in each of their forms; `benchmarks/examination.py` tries every architecture with one.
WINDOWED: dict[str, dict[str, Any]] = {
    "gpt_neo": {**FAMILIES["gpt_neo"], "window_size": 8},
    "mistral": {**_GROUPED, **_WINDOW},
    "ministral": _MIXED,
    "gemma2": {**FAMILIES["gemma2"], **_WINDOW},
    "gemma3n_text": {
        **_GEMMA,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "laurel_rank": 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "gemma4_text": {**_GEMMA, "global_head_dim": 16, "num_kv_shared_layers": 0},
    "gpt_oss": {**_MIXED, "num_local_experts": 2, "num_experts_per_tok": 1},
    "doge": {**_GROUPED, **_WINDOW, "keep_window_size": 256},
    "modernbert-decoder": {
        **_WIDE,
        "num_hidden_layers": 3,
        "local_attention": 16,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "cls_token_id": 0,
        "sep_token_id": 0,
    },
    "llama4_text": {
        **_GROUPED,
        **_EXPERTS,
        "head_dim": 8,
        "num_hidden_layers": 4,
        "attention_chunk_size": 8,
        "intermediate_size_mlp": 48,
        "interleave_moe_layer_step": 2,
        "no_rope_layers": [1, 1, 1, 0],
        "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
        "floor_scale": 16,
    },
}

# Those that the suite tries, among them padded ones.
WINDOWED_OF_EACH_KIND = ("gpt_neo", "mistral", "gemma2", "gemma3n_text", "gpt_oss", "modernbert-decoder", "llama4_text")
EVERY_WINDOWED = with_soak(WINDOWED, WINDOWED_OF_EACH_KIND)

logging.disable_progress_bar()


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE that starts every text it is given alone with one BOS token."""
    return deepcopy(_tokenizer())


@cache
def _tokenizer() -> PreTrainedTokenizerFast:
    return small_models.build_tokenizer([TEXT] * 3, size=320, special=(BOS,))


def random_network(model_type: str, seed: int = 0, **fields: Any) -> PreTrainedModel:
    """A random network of a model type in evaluation mode, its weights large enough to tell answers apart."""
    torch.manual_seed(seed)
    network: PreTrainedModel = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **fields))
    for parameter in network.parameters():
        # The usual initialisation is so small that every answer would be nearly equally likely.
        torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else None
    return network.eval()


def write_model(folder: Path, family: str, seed: int = 0, **changes: Any) -> Path:
    """Save a random model of a family with its tokenizer, in the hub's layout."""
    tokenizer = build_tokenizer()
    fields = {
        **{**WINDOWED, **FAMILIES}[family],
        "vocab_size": len(tokenizer),
        "bos_token_id": 0,
        "eos_token_id": 0,
        **changes,
    }
    random_network(family.removesuffix("-alibi"), seed, **{"pad_token_id": None, **fields}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
