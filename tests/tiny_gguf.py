"""A tiny Llama as a GGUF file, as converters write it."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(model: Path, path: Path) -> Path:
    """Write the Llama of a folder, without grouped heads, to a GGUF file in float32."""
    import gguf

    network, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    writer = gguf.GGUFWriter(path, "llama")
    _write_fields(writer, network, tokenizer)
    for name, tensor in network.state_dict().items():
        weight, title = tensor.numpy(), _title(name.removesuffix(".weight"))
        if title.endswith(("attn_q", "attn_k")):  # GGUF rotates neighbours, transformers halves of a head
            rows, columns = weight.shape
            weight = weight.reshape(network.config.num_attention_heads, 2, -1, columns).swapaxes(1, 2)
            weight = weight.reshape(rows, columns)
        writer.add_tensor(f"{title}.weight", weight.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _title(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}"


def _write_fields(writer: object, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    config, words = network.config, tokenizer.get_vocab()
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    fields = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": 10000.0,
        "vocab_size": len(words),
        "tokenizer_model": "gpt2",
        "token_list": sorted(words, key=words.__getitem__),
        "token_merges": [" ".join(pair) for pair in merges],
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
