"""`deepthink calibrate --first-token`: a weight that is given or chosen, and what a stored one does."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import write_rows

from deepthink_cli import calibrate, load_memory, load_model, open_memory, predict, weigh_first_token
from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.first_token import WEIGHTS

Captured = pytest.CaptureFixture[str]
LABELS = ("positive", "negative")
TEXTS = [f"{word} {kind} number {n}" for n in range(3) for word in ("warm", "dull") for kind in ("film", "play")]


@pytest.fixture
def memory(thought_of: Callable[..., Path], tmp_path: Path) -> Path:
    """A memory of a random model."""
    return thought_of(tmp_path / "mem.safetensors", "qwen3", "-T", "2")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows with their true labels."""
    return write_rows(tmp_path / "rows.jsonl", [{"review": t, "sentiment": LABELS[t > "e"]} for t in TEXTS])


def shares(memory: Path, rows: Path) -> list[dict[str, float]]:
    """The shares of the labels of every row."""
    engine, stored = load_model(str(open_memory(memory).provenance.model.id)), load_memory(memory)
    texts = [json.loads(line)["review"] for line in rows.read_text().splitlines()]
    found = [
        {label: math.exp(value) for label, value in each.scores.items()} for each in predict(engine, stored, texts)
    ]
    return [{label: value / sum(row.values()) for label, value in row.items()} for row in found]


def mean_entropy(memory: Path, rows: Path) -> float:
    return sum(-p * math.log(p) for row in shares(memory, rows) for p in row.values()) / len(TEXTS)


def mean_likelihood(memory: Path, rows: Path) -> float:
    true = [json.loads(line)["sentiment"] for line in rows.read_text().splitlines()]
    return sum(math.log(row[gold]) for row, gold in zip(shares(memory, rows), true, strict=True)) / len(TEXTS)


def test_a_given_weight_changes_the_scores_and_one_brings_the_bytes_back(memory: Path, rows: Path) -> None:
    before, scores = memory.read_bytes(), shares(memory, rows)
    assert run(["calibrate", str(memory), "--first-token", "4", "-q"]) == 0
    assert load_memory(memory).first_weight == 4
    assert shares(memory, rows) != scores
    assert run(["calibrate", str(memory), "--first-token", "1", "-q"]) == 0
    assert memory.read_bytes() == before


@pytest.mark.parametrize(("criterion", "value"), [("labels", mean_likelihood), ("entropy", mean_entropy)])
def test_the_weight_is_the_best_of_those_that_predict_would_use(
    criterion: str, value: Callable[[Path, Path], float], memory: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    chosen, sign = tmp_path / "chosen.safetensors", -1 if criterion == "labels" else 1
    assert run(["calibrate", str(memory), str(rows), "--first-token", criterion, "-o", str(chosen), "--json"]) == 0
    tried = json.loads(capsys.readouterr().out)["tried"]
    by_hand = {}
    for weight in WEIGHTS:
        weigh_first_token(memory, output=tmp_path / "one.safetensors", first_token=weight)
        by_hand[weight] = value(tmp_path / "one.safetensors", rows)
    field = "log_likelihood" if criterion == "labels" else "entropy"
    assert {each["weight"]: each[field] for each in tried} == pytest.approx(by_hand, abs=1e-5)
    best = min(by_hand, key=lambda weight: sign * by_hand[weight])
    assert load_memory(chosen).first_weight == best
    stored = read_header(chosen).metadata.first_token
    assert best == 1 or (stored is not None and (stored.criterion, stored.rows) == (criterion, len(TEXTS)))


def test_a_weight_removes_the_correction_and_a_correction_keeps_the_weight(memory: Path, capsys: Captured) -> None:
    calibrate(memory)
    assert run(["calibrate", str(memory), "--first-token", "2"]) == 0
    assert "left out, since of scores with the weight before" in capsys.readouterr().err
    assert read_header(memory).metadata.calibrated is None
    calibrate(memory)
    metadata = read_header(memory).metadata
    assert metadata.calibrated is not None
    assert metadata.first_token is not None


@pytest.mark.plugins
def test_inspect_shows_the_weight_and_export_warns(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    weigh_first_token(memory, first_token=2)
    assert run(["inspect", str(memory)]) == 0
    assert "attention weight x 2" in capsys.readouterr().out
    assert run(["export", str(memory), "--to", "peft", "-o", str(tmp_path / "adapter")]) == 0
    assert "stores a weight of 2 of its first token, which other programs do not apply" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--first-token", "much"], "--first-token much: give labels or entropy, or a weight from 0.001 to 1000"),
        (["--first-token", "0"], "--first-token 0: give labels or entropy, or a weight from 0.001 to 1000"),
        (["--first-token", "nan"], "--first-token nan: give labels or entropy"),
        (["--first-token", "labels"], "--first-token labels: chooses by rows; give a file of them"),
        (["--first-token", "2", "--calibrate", "contextual"], "--first-token 2: stores a weight; omit --calibrate"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(
    words: list[str], reason: str, memory: Path, capsys: Captured
) -> None:
    before = memory.read_bytes()
    assert run(["calibrate", str(memory), *words]) == 2
    assert reason in capsys.readouterr().err
    assert memory.read_bytes() == before


@pytest.mark.parametrize("criterion", ["labels", "entropy"])
def test_rows_with_several_labels_choose_no_weight(criterion: str, tmp_path: Path, capsys: Captured) -> None:
    several = write_rows(
        tmp_path / "several.jsonl", [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": ["x"]}]
    )
    other = write_rows(tmp_path / "rows.jsonl", [{"text": f"row {n}", "labels": ["x", "y"]} for n in range(20)])
    memory = tmp_path / "several.safetensors"
    assert run(["think", str(several), "-m", "pocket", "-T", "1", "-q", "-o", str(memory)]) == 0
    before = memory.read_bytes()
    capsys.readouterr()
    assert run(["calibrate", str(memory), str(other), "--first-token", criterion, "-q"]) == 2
    assert capsys.readouterr().err == (
        f"deepthink: --first-token {criterion}: chooses by the one label of a row, and those of {memory} may have "
        "several; give a weight\n"
    )
    assert memory.read_bytes() == before
    assert run(["calibrate", str(memory), "--first-token", "2", "-q"]) == 0


def test_a_given_weight_takes_no_rows(memory: Path, rows: Path) -> None:
    with pytest.raises(InputError, match="is not chosen by rows; omit them"):
        weigh_first_token(memory, rows, first_token=2)
