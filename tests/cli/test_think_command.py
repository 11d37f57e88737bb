"""What `deepthink think` says of the memory that it makes, and which ids the memory has with `--tokens parts`."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import shared, write_rows
from helpers.families import write_model
from helpers.said import Captured, json_of, output
from transformers import AutoTokenizer

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run

REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews" / "demos.jsonl"


def said(capsys: Captured, *words: str) -> list[str]:
    """The lines on stderr of a think that succeeds; stdout must be empty."""
    assert run(["think", *words]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


@pytest.fixture
def memory(tmp_path: Path) -> str:
    return str(tmp_path / "mem.safetensors")


def test_think_shows_template_labels_file_and_next_command(memory: str, capsys: Captured) -> None:
    words = [str(REVIEWS), "-m", "pocket", "-T", "2", "--eta", "0.1", "-o", memory]
    template, labels, wrote, following = said(capsys, *words)
    first = "A dull and lifeless comedy without a single good joke."
    assert template == rf"template  Review: {first}\nSentiment: negative"
    assert labels == "labels    8 negative, 8 positive (field 'sentiment'; --label-field for another)"
    assert wrote.startswith(f"wrote {memory} (")
    assert ": 318 tokens read 2 times, " in wrote
    assert following == f"next: deepthink predict {memory} INPUTS, or eval {memory} LABELLED"


def test_a_dry_run_shows_template_and_labels_too(memory: str, capsys: Captured) -> None:
    words = [str(REVIEWS), "-m", "pocket", "-o", memory]
    made = said(capsys, *words)
    planned = output(capsys, "think", *words, "--dry-run").splitlines()
    assert planned[:2] == made[:2]
    assert planned[-1] == f"file      {memory} (not written: this is a dry run)"
    values = json_of(capsys, "think", *words, "--dry-run", "--json")
    assert values["label_counts"] == {"negative": 8, "positive": 8}
    assert values["example"].endswith("Sentiment: negative")


def test_a_field_that_was_named_is_not_said_to_be_a_guess(memory: str, capsys: Captured) -> None:
    lines = said(capsys, str(REVIEWS), "--label-field", "sentiment", "-T", "1", "-o", memory)
    assert "labels    8 negative, 8 positive" in lines


def test_quiet_hides_what_it_made_and_not_the_warnings(tmp_path: Path, memory: str, capsys: Captured) -> None:
    rows = [{"label": label, "text": f"text number {label}{n}"} for n, label in enumerate("abab")]
    lines = said(capsys, str(write_rows(tmp_path / "r.jsonl", rows)), "-T", "1", "-q", "-o", memory)
    assert len(lines) == 1
    assert lines[0].startswith("warning: the field 'text' may not be the label: ")


def test_a_task_is_not_doubted(memory: str, capsys: Captured, tmp_path: Path) -> None:
    rows = [{"text": str(n), "label": label} for n, label in enumerate(["World", "Sports", "Business", "Technology"])]
    path = write_rows(tmp_path / "r.jsonl", rows)
    assert not any("warning" in line for line in said(capsys, str(path), "--task", "agnews", "-T", "1", "-o", memory))


def test_json_has_the_counts_the_example_and_the_warnings(tmp_path: Path, memory: str, capsys: Captured) -> None:
    rows = [{"id": n, "text": f"a text {n}x", "label": "ab"[n % 2]} for n in range(4)]
    values = json_of(
        capsys, "think", str(write_rows(tmp_path / "r.jsonl", rows)), "-T", "1", "--json", "-q", "-o", memory
    )
    assert values["label_counts"] == {"a": 2, "b": 2}
    assert (values["label_field"], values["example"]) == ("label", "Id: 0\nText: a text 0x\nLabel: a")
    assert len(values["warnings"]) == 1


def test_without_a_model_pocket_is_said_to_be_a_toy(memory: str, capsys: Captured) -> None:
    lines = said(capsys, str(REVIEWS), "-T", "1", "-o", memory)
    assert lines[0].startswith("no model named: pocket is a toy")
    assert "-m" in lines[0]
    assert not any("toy" in line for line in said(capsys, str(REVIEWS), "-T", "1", "-m", "pocket", "-o", memory))
    assert said(capsys, str(REVIEWS), "-T", "1", "-q", "-o", memory) == []


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


@pytest.mark.plugins
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
