"""Special tokens begin the demonstrations and never end them; tokens that a model does not know are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REVIEWS, read, shared, write_rows
from helpers.families import BOS, build_tokenizer, write_model
from helpers.said import Captured, refused
from helpers.tiny import run_words
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from deepthink_cli import DemonstrationSet, Example, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.model.boundary import demonstration_ids, encode, special_ids
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.tokens import tokenize_demonstrations

TEXT = "Review: good\nSentiment: positive\n\n"


def ruled(rule: str) -> PreTrainedTokenizerBase:
    """The tiny tokenizer with another rule for special tokens."""
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=rule, special_tokens=[(BOS, 0)])
    return tokenizer


@pytest.mark.parametrize(
    ("rule", "start"),
    [
        ("$A", []),
        (f"{BOS} $A", [0]),
        (f"$A {BOS}", []),
        (f"{BOS} $A {BOS}", [0]),
        (f"{BOS} {BOS} $A {BOS} {BOS}", [0, 0]),
    ],
)
def test_what_a_tokenizer_appends_is_left_out(rule: str, start: list[int]) -> None:
    tokenizer = ruled(rule)
    (own,) = encode(tokenizer, [TEXT], special=False)
    assert demonstration_ids(tokenizer, TEXT) == start + own
    assert list(special_ids(tokenizer)) == start


def test_a_text_that_ends_like_the_rule_keeps_its_end() -> None:
    tokenizer = build_tokenizer()
    end = tokenizer.convert_tokens_to_ids("Ċ")
    for rule in ("$A Ċ", "Ċ $A Ċ", "Ċ $A"):
        rules = processors.TemplateProcessing(single=rule, special_tokens=[("Ċ", end)])
        tokenizer.backend_tokenizer.post_processor = rules
        (own,) = encode(tokenizer, ["\t\n"], special=False)
        assert own[-1] == end
        assert demonstration_ids(tokenizer, "\t\n") == ([end] if rule.startswith("Ċ") else []) + own


def test_llama_with_eos_reads_the_demonstrations_without_it() -> None:
    folder = shared("tokenizers/llama2")
    plain, ending = (
        AutoTokenizer.from_pretrained(folder, add_eos_token=eos, add_bos_token=True) for eos in (False, True)
    )
    assert ending(TEXT)["input_ids"][-1] == ending.eos_token_id
    assert demonstration_ids(ending, TEXT) == demonstration_ids(plain, TEXT) == plain(TEXT)["input_ids"]


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """A model whose tokenizer has a word, zebra, for which the embedding has no row."""
    folder = write_model(tmp_path / "grown", "llama")
    tokenizer = build_tokenizer()
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(folder)
    return folder


def write_zebras(path: Path, field: str) -> Path:
    rows: list[dict[str, Any]] = [{"review": text, "sentiment": label} for text, label in REVIEWS]
    rows[2][field] = "zebra"
    return write_rows(path, rows)


@pytest.mark.parametrize("field", ["review", "sentiment"])
def test_a_demonstration_that_the_model_has_no_token_for_is_refused_before_the_weights(
    field: str, grown: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = json.loads((grown / "config.json").read_text())["vocab_size"]
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))
    line = refused(capsys, "think", str(write_zebras(tmp_path / "demos.jsonl", field)), "-m", grown)
    assert f"demonstrations: 'zebra' is token {known} of the tokenizer, and {grown} knows {known} tokens; " in line


def test_a_label_that_the_model_has_no_token_for_is_refused(grown: Path, demos: Path, capsys: Captured) -> None:
    words = ["think", str(demos), "-m", str(grown), "--labels", "positive,negative,zebra"]
    assert "deepthink: the labels: 'zebra' is token" in refused(capsys, *words)


@pytest.mark.parametrize("command", ["predict", "eval"])
def test_an_input_that_the_model_has_no_token_for_is_named(
    command: str, grown: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    memory = str(tmp_path / "mem.safetensors")
    assert run(["think", str(demos), "-m", str(grown), "-T", "1", "-q", "-o", memory]) == 0
    rows = write_zebras(tmp_path / "rows.jsonl", "review")
    assert f"deepthink: {rows}:3: 'zebra' is token" in refused(capsys, command, memory, rows, "-q")
    assert run([command, memory, str(rows), "-q", "--on-error", "skip"]) == 1
    assert f"skipped: {rows}:3: 'zebra' is token" in capsys.readouterr().err


def test_a_runs_demonstrations_are_known_to_the_model(grown: Path, tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, grown, "-q", template="zebra {text}\nSentiment: {kind}")
    assert "task tiny, seed 0: demonstrations: 'zebra' is token" in refused(capsys, *words)


def test_a_reading_of_a_token_that_the_embedding_has_not_is_refused(grown: Path) -> None:
    engine = load_model(open_model(ModelOptions(model=str(grown))))
    given = DemonstrationSet.of([Example("a zebra", "yes"), Example("a film", "no")], "{text}: {label}")
    with pytest.raises(InputError, match=r"a reading: 'zebra' is token"):
        read(engine, tokenize_demonstrations(engine.tokenizer, given).token_ids)
    assert engine.model.known_tokens == len(torch.as_tensor(engine.model.network.get_input_embeddings().weight))
