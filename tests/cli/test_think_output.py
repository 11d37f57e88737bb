"""What `deepthink think` says of the memory that it makes, on stderr and in its JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured, json_of

from deepthink_cli.cli.main import run

REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews" / "demos.jsonl"


def said(capsys: Captured, *words: str) -> list[str]:
    """The lines on stderr of a think that succeeds; stdout must be empty."""
    assert run(["think", *words]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


@pytest.fixture
def output(tmp_path: Path) -> str:
    return str(tmp_path / "mem.safetensors")


def test_think_names_model_template_labels_length_and_file(output: str, capsys: Captured) -> None:
    lines = said(capsys, str(REVIEWS), "-m", "pocket", "-T", "2", "--eta", "0.1", "-o", output)
    assert lines[0] == "model     pocket"
    first = "A dull and lifeless comedy without a single good joke."
    assert lines[1] == rf"template  Review: {first}\nSentiment: negative"
    assert (
        lines[2] == "labels    8 negative, 8 positive (field 'sentiment', the last one; --label-field NAME for another)"
    )
    assert lines[3].startswith("reads     16 demonstrations, L = 318 tokens; 2 readings, eta 0.1")
    assert lines[4].startswith("read 2 times in ")
    assert lines[5].startswith(f"wrote {output} (")


def test_a_field_that_was_named_is_not_said_to_be_a_guess(output: str, capsys: Captured) -> None:
    lines = said(capsys, str(REVIEWS), "--label-field", "sentiment", "-T", "1", "-o", output)
    assert "labels    8 negative, 8 positive" in lines


def test_quiet_hides_what_it_made_and_not_the_warnings(tmp_path: Path, output: str, capsys: Captured) -> None:
    rows = [{"label": label, "text": f"text number {label}{n}"} for n, label in enumerate("abab")]
    lines = said(capsys, str(write_rows(tmp_path / "r.jsonl", rows)), "-T", "1", "-q", "-o", output)
    assert len(lines) == 1
    assert lines[0].startswith("warning: the field 'text' may not be the label: ")


def test_a_task_is_not_doubted(output: str, capsys: Captured, tmp_path: Path) -> None:
    rows = [{"text": str(n), "label": label} for n, label in enumerate(["World", "Sports", "Business", "Technology"])]
    path = write_rows(tmp_path / "r.jsonl", rows)
    assert not any("warning" in line for line in said(capsys, str(path), "--task", "agnews", "-T", "1", "-o", output))


def test_json_has_the_counts_the_example_and_the_warnings(tmp_path: Path, output: str, capsys: Captured) -> None:
    rows = [{"id": n, "text": f"a text {n}x", "label": "ab"[n % 2]} for n in range(4)]
    values = json_of(
        capsys, "think", str(write_rows(tmp_path / "r.jsonl", rows)), "-T", "1", "--json", "-q", "-o", output
    )
    assert values["label_counts"] == {"a": 2, "b": 2}
    assert (values["label_field"], values["example"]) == ("label", "Id: 0\nText: a text 0x\nLabel: a")
    assert len(values["warnings"]) == 1


def test_without_a_model_pocket_is_said_to_be_a_toy(output: str, capsys: Captured) -> None:
    lines = said(capsys, str(REVIEWS), "-T", "1", "-o", output)
    assert lines[0].startswith("no model named: pocket is a toy")
    assert "-m" in lines[0]
    assert not any("toy" in line for line in said(capsys, str(REVIEWS), "-T", "1", "-m", "pocket", "-o", output))
    assert said(capsys, str(REVIEWS), "-T", "1", "-q", "-o", output) == []
