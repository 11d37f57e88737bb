"""Which demonstrations fit a model, found without tokenising all that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Models, read, write_rows
from helpers.families import build_tokenizer
from helpers.said import Captured, refused
from helpers.texts import TEMPLATE, TOKENIZERS, WORDS, tokenizer_of
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from deepthink_cli import DemonstrationSet, Example, load_model, tokenize_demonstrations
from deepthink_cli.data.template import Template
from deepthink_cli.model.limits import Limits, check_fit, count_tokens, max_count
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions


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


@pytest.mark.parametrize("family", ["qwen3", "gemma2", "deepseek_v3", "falcon", "mpt"])
def test_the_planned_size_is_that_of_the_memory(family: str, models: Models) -> None:
    spec = open_model(ModelOptions(model=str(models(family))))
    assert spec.memory_bytes(7) == read(load_model(spec), range(7)).nbytes
