"""The size that a dry run prints is the size of the memory, also where layers differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import read
from helpers.families import FAMILIES, build_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

from deepthink_cli import load_model
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import memory_width

_TINY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "sliding_window": 256,
}
_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_TURNS = ["sliding_attention", "full_attention"] * 2
VARIED: dict[str, dict[str, Any]] = {
    "gemma4_text": {
        **_TINY,
        "head_dim": 8,
        "global_head_dim": 16,
        "num_kv_shared_layers": 2,
        "layer_types": _TURNS,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 320,
    },
    "gemma3n_text": {
        **_TINY,
        "head_dim": 8,
        "num_kv_shared_layers": 2,
        "layer_types": _TURNS,
        "laurel_rank": 4,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 320,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    },
    "mimo_v2_flash": {
        **_TINY,
        **_EXPERTS,
        "head_dim": 12,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "layer_types": _TURNS,
    },
    "gpt_oss": {**_TINY, **_EXPERTS, "head_dim": 8},
    "cohere2": _TINY,
    "qwen3_moe": {**_TINY, **_EXPERTS, "head_dim": 8},
    "deepseek_v3": FAMILIES["deepseek_v3"],
    "falcon": {**FAMILIES["falcon"], "new_decoder_architecture": True, "num_kv_heads": 2},
    "gpt_bigcode": FAMILIES["gpt2"],
    "mixtral": {**_TINY, **_EXPERTS},
}


def config(family: str) -> Any:
    tokens = {"vocab_size": 320, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
    return AutoConfig.for_model(family, **{**tokens, **VARIED[family]})


@pytest.mark.parametrize("family", VARIED)
def test_the_planned_size_is_that_of_the_memory(family: str, tmp_path: Path) -> None:
    network = AutoModelForCausalLM.from_config(config(family))
    network.save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    spec = open_model(ModelOptions(model=str(tmp_path)))
    assert spec.memory_bytes(7) == read(load_model(spec), range(7)).nbytes


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3", "gpt_bigcode", "gpt_oss"])
def test_an_architecture_that_needs_numbers_is_told_from_its_fields(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(family)
    width = memory_width(given)
    monkeypatch.setattr("transformers.DynamicCache", None)
    assert memory_width(given) == width


def test_asking_for_the_size_changes_nothing_of_the_configuration() -> None:
    given = config("qwen3_moe")
    before = given.to_dict()
    memory_width(given)
    assert (given.to_dict(), given._attn_implementation) == (before, config("qwen3_moe")._attn_implementation)
