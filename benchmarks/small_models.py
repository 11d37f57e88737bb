"""Small random models of any architecture of transformers, saved with a tokenizer in the hub's layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from deepthink_cli import DemonstrationSet, Example, Query

QUERIES = [Query("a quiet joy", ("good", "bad", "good and bad")), Query("so so", ("bad", "badly made"))]
_REVIEWS = [("a warm film", "good"), ("a dull mess", "bad"), ("tender and wise", "good"), ("far too long", "bad")]
BOS, PAD = "<|begin|>", "<|pad|>"
WINDOW = 64  # tokens that a layer with a window sees
_POSITIONS = 512

# The names that configurations have for their sizes. A configuration uses those that it knows.
_SIZES = {
    32: "hidden_size n_embd d_model dim emb_dim embedding_size embedding_dim word_embed_proj_dim input_embedding_size "
    "output_embedding_size lru_width attention_hidden_size router_hidden_size",
    48: "intermediate_size n_inner ffn_dim decoder_ffn_dim encoder_ffn_dim dff dim_ff d_inner ffn_hidden_size "
    "expert_ffn_hidden_size feed_forward_size intermediate_size_mlp dense_intermediate_size",
    16: "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
    "moe_shared_expert_intermediate_size shared_experts_intermediate_size kv_lora_rank q_lora_rank "
    "hidden_size_per_layer_input mamba_d_head index_topk",
    12: "v_head_dim",
    8: "head_dim dim_head d_head attention_head_size qk_rope_head_dim qk_nope_head_dim index_head_dim kv_channels",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads "
    "num_decoder_attention_heads num_encoder_attention_heads attention_heads num_experts n_routed_experts "
    "num_local_experts moe_num_experts rotary_dim zero_expert_num mamba_n_heads index_n_heads",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_decoder_layers "
    "num_encoder_layers num_experts_per_tok num_experts_per_token moe_topk moe_k moe_top_k kv_n_heads",
    1: "n_group topk_group num_expert_group first_k_dense_replace num_dense_layers n_shared_experts num_shared_experts "
    "moe_num_shared_experts max_window_layers decoder_sparse_step",
    0: "bos_token_id eos_token_id decoder_start_token_id start_token_id eod_token_id",
    WINDOW: "sliding_window_size attention_chunk_size window_size attention_window_size "
    "local_attention keep_window_size",
    _POSITIONS: "max_position_embeddings n_positions n_ctx max_seq_len max_target_positions max_source_positions",
}
_SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
_VOCABULARY = ("vocab_size", "vocab_size_per_layer_input", "n_words")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_LAYER_KINDS = ("layer_types", "mlp_layer_types", "layers_block_type")
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"]}
_YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 32}
_DRAFT = {
    "model_type": "gemma4_text",
    "num_hidden_layers": 2,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
}
_GEMMA4: dict[str, Any] = {"global_head_dim": 16}

# What the sizes above do not settle, by the `model_type` of a configuration or of a part of one.
_SPECIAL: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    },
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots3_note_audio_encoder": {"adapter_input_size": 32, "adapter_hidden_size": 32, "adapter_output_size": 32},
    "dots3_note_vision_encoder": {"adapter_in_dim": 32, "adapter_out_dim": 32},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": 2 * _SLIDING["layer_types"]},
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "gemma4_assistant": {"text_config": _DRAFT},
    "gemma4_unified_assistant": {"text_config": _DRAFT},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "laguna": _SLIDING,
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "llama4_text": {"floor_scale": 16},
    "mamba2": {"head_dim": 16},
    "mellum": _SLIDING,
    "minimax_m3_vl_text": {
        "layer_types": ["minimax_m3_sparse", "full_attention"],
        "index_block_size": 8,
        "index_topk_blocks": 2,
    },
    "ministral": {"head_dim": 8},
    "ministral3": {"rope_parameters": {**_YARN, "llama_4_scaling_beta": 0.1}},
    "modernbert-decoder": {"local_attention": 2 * WINDOW},  # on both sides
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "reformer": {"is_decoder": True},
    "zaya": {"num_experts_per_tok": 1},
}


# Rows of their own: other values of a configuration that decide how a model attends.
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "factor": 4.0,
    "original_max_position_embeddings": _POSITIONS,
}
FORMS: dict[tuple[str, str], dict[str, Any]] = {
    ("falcon", "alibi"): {"alibi": True},
    ("falcon", "new_decoder_architecture"): {"new_decoder_architecture": True},
    ("gemma3_text", "use_bidirectional_attention"): {"use_bidirectional_attention": True},
    ("gpt_bigcode", "multi_query = false"): {"multi_query": False},
    ("granitemoehybrid", "attention layers only"): {
        "layer_types": ["full_attention"] * 2,
        "position_embedding_type": "rope",
    },
    ("lfm2", "with conv layers"): {"layer_types": ["conv", "full_attention"]},
    ("lfm2_moe", "attention layers only"): {"layer_types": ["full_attention"] * 2},
    ("minimax_m3_vl_text", "full_attention layers only"): {"layer_types": ["full_attention"] * 2},
    ("phi3", "longrope"): {"rope_parameters": _LONGROPE, "max_position_embeddings": 4 * _POSITIONS},
}


def small_config(model_type: str, vocabulary: int, **changes: Any) -> PretrainedConfig:
    """The configuration of a model type with everything small; `changes` take precedence."""
    kind = CONFIG_MAPPING[model_type]
    config: PretrainedConfig = kind(**_merged(_small_fields(kind, vocabulary), changes))
    return config


def _small_fields(kind: type[PretrainedConfig], vocabulary: int) -> dict[str, Any]:
    """The arguments that make a configuration of this class small."""
    names, default = {field.name for field in fields(kind)}, _default(kind)
    small: dict[str, Any] = {
        name: size for name, size in _SMALL.items() if name in names and isinstance(default.get(name), int)
    }
    small |= {name: vocabulary for name in _VOCABULARY if name in names}
    for name in _KV_HEADS:
        if default.get(name) is not None and name in names:
            small[name] = 4 if default[name] == default.get("num_attention_heads") else 2
    if default.get("pad_token_id") is not None:
        small["pad_token_id"] = 1
    if "sliding_window" in names:
        small["sliding_window"] = WINDOW
    if "use_sliding_window" in names:
        small["use_sliding_window"] = True
    for name in _LAYER_KINDS:
        kinds = list(dict.fromkeys(default.get(name) or ()))
        if name in names and len(kinds) > 1:
            small |= {name: kinds} | {count: len(kinds) for count in ("num_hidden_layers", "n_layer") if count in names}
    parts = {name: default[name] for name in kind.sub_configs if isinstance(default.get(name), PretrainedConfig)}
    small |= {name: _small_fields(type(part), vocabulary) for name, part in parts.items() if name in names}
    return _merged(small, _SPECIAL.get(kind.model_type, {}))


def _default(kind: type[PretrainedConfig]) -> dict[str, Any]:
    """The values of a configuration without arguments, with those that it derives."""
    declared = {field.name: field.default for field in fields(kind)}
    try:
        config = kind()
    except Exception:  # some classes need arguments, and refuse their absence with any error
        return declared
    values = {}
    for name, default in declared.items():
        try:
            values[name] = getattr(config, name)
        except RuntimeError:  # differs between layers
            values[name] = default
    return values


def _merged(fields_: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Fields with changes, which may be nested; a list of layers sets the number of layers."""
    merged = dict(fields_)
    for name, value in changes.items():
        nested = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merged(merged[name], value) if nested else value
        if name == "layer_types" and "num_hidden_layers" in merged:
            merged["num_hidden_layers"] = len(value)
    return merged


def reviews(count: int) -> DemonstrationSet:
    """As many demonstrations, of four different ones in turn."""
    examples = [Example(*_REVIEWS[number % len(_REVIEWS)]) for number in range(count)]
    return DemonstrationSet.of(examples, "Review: {text}\nKind: {kind}")


def tokenizer_of_reviews() -> PreTrainedTokenizerFast:
    """A tokenizer with the words of the demonstrations."""
    return build_tokenizer([reviews(4).template.demonstrations(_REVIEWS)] * 3)


def build_tokenizer(
    texts: Iterable[str], size: int = 400, special: Sequence[str] = (BOS, PAD)
) -> PreTrainedTokenizerFast:
    """A byte-level BPE that starts every text with one BOS token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    padding = {"pad_token": PAD} if PAD in special else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS, **padding)


def random_network(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A network in evaluation mode, its weights large enough to tell candidates apart."""
    torch.manual_seed(seed)
    network: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in network.parameters():
            # The usual initialisation is so small that attention would hardly matter, and biases would be zero.
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return network.eval()
