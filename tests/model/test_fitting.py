"""Which demonstrations fit a model, found without tokenising all that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, read, write_rows
from helpers.families import FAMILIES, WINDOWED, build_tokenizer
from helpers.said import Captured, refused
from helpers.texts import TEMPLATE, TOKENIZERS, WORDS, tokenizer_of
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from deepthink_cli import DemonstrationSet, Example, load_model, tokenize_demonstrations
from deepthink_cli.data.template import Template
from deepthink_cli.model.limits import Limits, check_fit, count_tokens, max_count
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import memory_width


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length in characters of every text that is tokenised."""
    counted: list[int] = []
    call = PreTrainedTokenizerFast.__call__

    def counting(tokenizer: object, text: str | list[str], **options: object) -> object:
        counted.extend(map(len, [text] if isinstance(text, str) else text))
        return call(tokenizer, text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", counting)
    return counted


@pytest.mark.parametrize("name", ["tiny", *TOKENIZERS])
@given(TEMPLATE, st.lists(st.builds(Example, WORDS, WORDS), min_size=1, max_size=9), st.integers(0, 120), st.booleans())
def test_as_many_fit_as_counting_one_by_one_finds(
    name: str, template: Template, examples: list[Example], largest: int, last: bool
) -> None:
    tokenizer = build_tokenizer() if name == "tiny" else tokenizer_of(name)
    lengths = {}
    for number in range(1, len(examples) + 1):
        chosen = examples[-number:] if last else examples[:number]
        lengths[number] = len(tokenize_demonstrations(tokenizer, DemonstrationSet.of(chosen, template)).token_ids)
        assert count_tokens(tokenizer, DemonstrationSet.of(examples, template), chosen) == lengths[number]
    found = max_count(lengths.__getitem__, len(examples), largest)
    assert found == max((number for number, length in lengths.items() if length <= largest), default=0)


def test_one_demonstration_more_may_be_a_token_less() -> None:
    lengths = [0, 4, 9, 11, 10, 10, 12]
    assert max_count(lengths.__getitem__, 6, 10) == 5


def test_a_long_demonstration_that_does_not_fit_is_named_with_its_tokens(
    models: Models, tokenised: list[int], tmp_path: Path, capsys: Captured
) -> None:
    rows = [
        {"text": "x", "label": "a"},
        {"text": "word " * 200_000, "label": "b"},
        {"text": "y " * 100_000, "label": "b"},
    ]
    path = write_rows(tmp_path / "demos.jsonl", rows)
    line = refused(capsys, "think", path, "-m", str(models("llama")))
    assert "demonstrations too long: L = at least " in line
    assert "the first 1 of 3 demonstrations would fit" in line
    assert max(tokenised) < 1_000_100


def test_a_model_without_limit_counts_nothing(models: Models, tokenised: list[int], reviews: DemonstrationSet) -> None:
    many_reviews = replace(reviews, examples=reviews.examples * 100)
    check_fit(Limits(None, None, relative=True), tokenizer_of("gpt2"), many_reviews, 2, "continued", "bloom")
    assert tokenised == []


_TINY: dict[str, Any] = {**FAMILIES["mistral"], "num_hidden_layers": 4}
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
    "gemma3n_text": WINDOWED["gemma3n_text"],
    "mimo_v2_flash": {
        **_TINY,
        **_EXPERTS,
        "head_dim": 12,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "layer_types": _TURNS,
    },
    "gpt_oss": {**_TINY, **_EXPERTS, "head_dim": 8},
    "qwen3_moe": {**_TINY, **_EXPERTS, "head_dim": 8},
    "deepseek_v3": FAMILIES["deepseek_v3"],
    "falcon": {**FAMILIES["falcon"], "new_decoder_architecture": True, "num_kv_heads": 2},
    "gpt_bigcode": FAMILIES["gpt2"],
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
