"""`--tokens parts`: the ids of demonstrations and query each alone, as in the official code."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import shared, write_rows
from helpers.families import write_model
from helpers.said import Captured, json_of, output
from transformers import AutoTokenizer

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.study import open_study

TEXT = "Text: a joy\nLabel: good\n\nText: dull\nLabel: bad\n\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with the tokenizer of GPT-2, which joins two line breaks at the end of a text."""
    folder = write_model(tmp_path_factory.mktemp("model"), "gpt2", vocab_size=50257)
    AutoTokenizer.from_pretrained(shared("tokenizers/gpt2")).save_pretrained(folder)
    return folder


def ids_of(words: list[str], model: Path, tmp_path: Path) -> list[int]:
    """The ids of two demonstrations in the file of a memory."""
    rows = [{"text": "a joy", "label": "good"}, {"text": "dull", "label": "bad"}]
    demos, memory = write_rows(tmp_path / "demos.jsonl", rows), tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "-m", str(model), "-T", "1", "-q", "-o", str(memory), *words]) == 0
    return read_header(memory).metadata.demonstrations.token_ids


def test_a_memory_has_the_ids_of_the_whole_prompt_and_of_parts_only_where_that_is_asked_for(
    model: Path, tmp_path: Path, capsys: Captured
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    memory = tmp_path / "mem.safetensors"
    whole = ids_of([], model, tmp_path)
    assert [*whole, *tokenizer("Text: x").input_ids] == tokenizer(TEXT + "Text: x").input_ids
    assert "token ids" not in output(capsys, "inspect", memory)
    assert ids_of(["--tokens", "parts"], model, tmp_path) == tokenizer(TEXT).input_ids
    assert "of demonstrations and query, each alone" in output(capsys, "inspect", memory)


def test_predict_gives_queries_the_ids_that_the_memory_records(model: Path, tmp_path: Path, capsys: Captured) -> None:
    queries = write_rows(tmp_path / "queries.jsonl", [{"text": "a warm film"}])
    scores = []
    for words in ([], ["--tokens", "parts"]):
        ids_of(words, model, tmp_path)
        scores.append(json_of(capsys, "predict", tmp_path / "mem.safetensors", queries, "-q")["scores"])
    assert scores[0] != pytest.approx(scores[1], abs=1e-3)


@pytest.mark.plugins
def test_the_official_recipe_has_the_ids_of_parts() -> None:
    assert open_study("paper/official-recipe").study.tokens == "parts"
