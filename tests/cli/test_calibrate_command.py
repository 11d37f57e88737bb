"""`deepthink calibrate`, `think --calibrate`, and what a stored correction does in the commands that label."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from conftest import REVIEWS, Models, write_reviews, write_rows
from helpers.by_hand import canonical
from helpers.said import Captured, rows_of

from deepthink_cli import Scoring, calibrate, evaluate, load_memory, load_model, predict
from deepthink_cli.artifact.format import read_artifact, read_header
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError

LABELS = ("positive", "negative")
TEXTS = [f"{word} {kind} number {n}" for n in range(6) for word in ("warm", "dull") for kind in ("film", "play")]


@pytest.fixture
def made(thought_of: Callable[..., Path], tmp_path: Path) -> Path:
    """A memory of T = 3 alone, of a random model, which prefers one label."""
    return thought_of(tmp_path / "made.safetensors", "qwen3", "-T", "3")


@pytest.fixture
def memory(thought_of: Callable[..., Path], tmp_path: Path) -> Path:
    """The same memory, to be changed."""
    return thought_of(tmp_path / "mem.safetensors", "qwen3", "-T", "3")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows with their true labels."""
    return write_rows(tmp_path / "rows.jsonl", [{"review": t, "sentiment": LABELS[t > "e"]} for t in TEXTS])


def mean_log_shares(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """log b(y): of the mean share of each label over rows of raw scores."""
    shares = []
    for row in rows:
        total = sum(math.exp(score) for score in row["scores"].values())
        shares.append({label: math.exp(score) / total for label, score in row["scores"].items()})
    return {label: math.log(fmean(each[label] for each in shares)) for label in LABELS}


def without(scores: dict[str, float], bias: dict[str, float]) -> tuple[str, float]:
    """The label and its share after a bias is taken off."""
    weights = {label: math.exp(score - bias[label]) for label, score in scores.items()}
    label = max(weights, key=lambda each: weights[each])
    return label, weights[label] / sum(weights.values())


def test_the_stored_bias_is_that_of_the_rows_and_every_later_row_is_corrected_by_it_alone(
    memory: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    bias = mean_log_shares(rows_of(capsys, "predict", memory, rows))
    assert run(["calibrate", str(memory), str(rows), "-q"]) == 0
    stored = read_header(memory).metadata.calibrated
    assert (stored.method, stored.scoring, stored.inputs, stored.source) == ("batch", {}, len(TEXTS), "rows.jsonl")
    assert stored.bias["3"].compared == pytest.approx(bias, abs=1e-5)
    assert stored.sha256 == hashlib.sha256(canonical(TEXTS).encode()).hexdigest()
    one = write_rows(tmp_path / "one.jsonl", [{"review": "loud"}])
    (row,) = rows_of(capsys, "predict", memory, one)
    assert (row["label"], row["probability"]) == pytest.approx(without(row["scores"], bias), abs=1e-5)
    assert row["calibrated"]["stored"]["rows"] == len(TEXTS)


def test_think_stores_the_bias_of_its_texts_with_the_same_tensors(
    models: Models, made: Path, tmp_path: Path, capsys: Captured
) -> None:
    demos, path = write_reviews(tmp_path / "demos.jsonl"), tmp_path / "mem.safetensors"
    words = ["think", str(demos), "-m", str(models("qwen3")), "-T", "3", "-o", str(path), "--calibrate", "contextual"]
    assert run(words) == 0
    assert "corrected by contextual calibration of 3 texts; at T = 3: '" in capsys.readouterr().err
    # an empty text cannot be a row; the texts are scored through Python
    empty = list(predict(load_model(str(models("qwen3"))), load_memory(made), ["N/A", "[MASK]", ""]))
    bias = mean_log_shares([{"scores": each.scores} for each in empty])
    stored = read_header(path).metadata.calibrated
    assert stored.bias["3"].compared == pytest.approx(bias, abs=1e-5)
    assert stored.sha256 == hashlib.sha256(b'["N/A","[MASK]",""]').hexdigest()
    after = tmp_path / "after.safetensors"
    assert run(["calibrate", str(made), "-q", "-o", str(after)]) == 0
    assert read_header(after).metadata.calibrated == stored
    assert after.read_bytes() == path.read_bytes()


def test_removing_a_correction_gives_the_bytes_of_the_memory_without_one(memory: Path, made: Path) -> None:
    assert run(["calibrate", str(memory), "-q", "--calibrate", "domain"]) == 0
    read_artifact(read_header(memory))
    assert memory.read_bytes() != made.read_bytes()
    assert run(["calibrate", str(memory), "-q", "--calibrate", "none"]) == 0
    assert memory.read_bytes() == made.read_bytes()


def test_other_names_replace_the_stored_correction(memory: Path, rows: Path, capsys: Captured) -> None:
    raw = rows_of(capsys, "predict", memory, rows)
    assert run(["calibrate", str(memory), "-q", "--calibrate", "pmi"]) == 0
    assert rows_of(capsys, "predict", memory, rows, "--calibrate", "none") == raw
    for row in rows_of(capsys, "predict", memory, rows, "--calibrate", "batch"):
        assert row["calibrated"].keys() == {"batch"}
    both = rows_of(capsys, "predict", memory, rows, "--calibrate", "stored,none,pmi")
    for row in both:
        assert row["calibrated"]["stored"]["bias"] == pytest.approx(row["calibrated"]["pmi"]["bias"], abs=1e-6)


def test_eval_corrects_t_1_too_though_the_file_does_not_keep_it(memory: Path, rows: Path, capsys: Captured) -> None:
    (contextual,) = rows_of(capsys, "eval", memory, rows, "--json", "--calibrate", "contextual")
    assert run(["calibrate", str(memory), "-q"]) == 0
    (stored,) = rows_of(capsys, "eval", memory, rows, "--json")
    for before, after in zip(contextual["results"], stored["results"], strict=True):
        left, right = before["calibrated"]["contextual"], after["calibrated"]["stored"]
        assert left["log_probability"] == pytest.approx(right["log_probability"], abs=1e-6)
        assert left["accuracy_mean_per_token"] == right["accuracy_mean_per_token"]
    assert [each["iteration"] for each in stored["results"]] == [1, 3]
    accuracy = after["calibrated"]["stored"]["accuracy"]
    assert run(["eval", str(memory), str(rows), "-q", "--fail-under", str(accuracy)]) == 0
    assert run(["eval", str(memory), str(rows), "-q", "--fail-under", str(accuracy + 0.01)]) == 3


def test_an_ensemble_is_corrected_by_the_mean_of_the_stored_biases(
    memory: Path, models: Models, tmp_path: Path, rows: Path, capsys: Captured
) -> None:
    reversed_rows = [{"review": text, "sentiment": label} for text, label in REVIEWS[::-1]]
    demos, other = write_rows(tmp_path / "d.jsonl", reversed_rows), tmp_path / "other.safetensors"
    words = ["think", str(demos), "-m", str(models("qwen3")), "-T", "3", "-q", "-o", str(other)]
    assert run([*words, "--labels", "positive,negative"]) == 0
    assert run(["calibrate", str(memory), "-q"]) == 0
    together = ["predict", str(memory), str(rows), "--ensemble", str(other), "-q"]
    assert run(together) == 2
    error = capsys.readouterr().err
    assert "other.safetensors: stores no correction; store one with deepthink calibrate" in error
    assert "--calibrate none" in error
    assert run(["calibrate", str(other), "-q"]) == 0
    biases = [read_header(path).metadata.calibrated for path in (memory, other)]
    for row in rows_of(capsys, *together):
        for label, value in row["calibrated"]["stored"]["bias"].items():
            assert value == pytest.approx(fmean(each.bias["3"].compared[label] for each in biases if each))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{mem} --calibrate batch", "--calibrate batch: is estimated from rows; give a file of them, or use"),
        ("{mem} {rows} --calibrate pmi", "--calibrate pmi: is estimated from texts of its own; omit the rows"),
        ("{mem} --calibrate flat", "--calibrate flat: a memory stores one of none, contextual"),
        ("{mem} {rows} --calibrate head,centroid", "--calibrate head,centroid: a memory stores one of none"),
        ("{mem} --limit 5", "--limit 5: only with ROWS; give them, or omit this"),
        ("{mem} {few}", "--calibrate batch: is estimated from 20 rows or more, not from 3; store"),
        ("{mem} {one} --calibrate fitted", "one.jsonl: no row has the label 'negative'; fitted needs rows of every"),
        ("{mem} {rows} -o {rows}", "-o {rows}: the same file as {rows}, which this command reads"),
        ("{rows}", "{rows}: not a deepthink memory"),
    ],
)
def test_wrong_words_are_one_line_with_the_way_out(
    words: str, message: str, memory: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    few = write_rows(tmp_path / "few.jsonl", [{"review": text} for text in TEXTS[:3]])
    one = write_rows(tmp_path / "one.jsonl", [{"review": text, "sentiment": "positive"} for text in TEXTS])
    paths = {"mem": memory, "rows": rows, "few": few, "one": one}
    before = memory.read_bytes()
    assert run(["calibrate", *words.format(**paths).split(), "-q"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"deepthink: {message.format(**paths)}")
    assert memory.read_bytes() == before


def test_a_correction_of_another_score_or_of_other_candidates_is_refused_with_the_way_out(
    memory: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert run(["calibrate", str(memory), str(rows), "-q", "--score", "mean"]) == 0
    assert run(["predict", str(memory), str(rows), "-q"]) == 2
    error = capsys.readouterr().err
    assert f"the correction that {memory} stores is of --score mean; give the same, store another" in error
    assert run(["predict", str(memory), str(rows), "-q", "--score", "mean"]) == 0
    own = write_rows(tmp_path / "own.jsonl", [{"review": "flat", "candidates": ["stale", "bright"]}])
    words = ["predict", str(memory), str(own), "-q", "--score", "mean"]
    assert run(words) == 2
    error = capsys.readouterr().err
    assert f"{own}:1: has candidates of its own, and the memory's correction is of its labels" in error
    assert run([*words, "--calibrate", "none"]) == 0


def test_demonstrations_among_the_rows_are_left_out(memory: Path, tmp_path: Path, capsys: Captured) -> None:
    texts = [*TEXTS, *(text for text, _ in REVIEWS)]
    mixed = write_rows(tmp_path / "mixed.jsonl", [{"review": text} for text in texts])
    assert run(["calibrate", str(memory), str(mixed)]) == 0
    assert "warning: 4 of 28 rows are left out: demonstrations of the memory" in capsys.readouterr().err
    stored = read_header(memory).metadata.calibrated
    assert stored.inputs == len(TEXTS)


@pytest.mark.plugins
def test_inspect_and_diff_show_the_correction(memory: Path, made: Path, rows: Path, capsys: Captured) -> None:
    assert run(["calibrate", str(memory), str(rows), "-q"]) == 0
    assert run(["inspect", str(memory)]) == 0
    shown = "batch calibration of 24 rows of rows.jsonl; at T = 3: '"
    assert f"corrected {shown}" in capsys.readouterr().out
    (described,) = rows_of(capsys, "inspect", memory, "--json")
    assert described["calibrated"]["bias"].keys() == {"1", "3"}
    (compared,) = rows_of(capsys, "diff", made, memory, "--json")
    assert compared["provenance"].keys() == {"corrected"}
    assert compared["change"] == {"keys": 0.0, "values": 0.0}
    (labels,) = rows_of(capsys, "diff", made, memory, rows, "--json")
    raw, after = (rows_of(capsys, "predict", path, rows) for path in (made, memory))
    changed = [left["index"] for left, right in zip(raw, after, strict=True) if left["label"] != right["label"]]
    assert [row["index"] for row in labels["labels"]["rows"]] == changed != []


def test_python_stores_and_uses_a_correction_as_the_command_line_does(
    memory: Path, made: Path, models: Models, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    header = calibrate(made, rows, tmp_path / "python.safetensors")
    assert run(["calibrate", str(memory), str(rows), "-q"]) == 0
    assert header.metadata.sha256 == read_header(memory).metadata.sha256
    printed = rows_of(capsys, "predict", memory, rows)
    engine = load_model(str(models("qwen3")))
    for use, options in (((), []), (("none",), ["--calibrate", "none"])):
        printed = rows_of(capsys, "predict", memory, rows, *options)
        found = list(predict(engine, load_memory(memory), TEXTS, calibrate=use))
        assert [each.label for each in found] == [row["label"] for row in printed]
        assert [each.probability for each in found] == pytest.approx([row["probability"] for row in printed], abs=1e-6)
        assert found[0].scores == pytest.approx(printed[0]["scores"], abs=1e-5)
    assert evaluate(memory, rows).calibrate == ("stored",)
    with pytest.raises(InputError, match=r"score mean: the correction that .* is of score sum"):
        list(predict(engine, load_memory(memory), TEXTS, scoring=Scoring.of(score="mean")))


@pytest.mark.plugins
def test_rows_that_are_all_demonstrations_are_refused_and_without_rows_they_serve(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    own = write_reviews(tmp_path / "own.jsonl")
    assert run(["calibrate", str(memory), str(own), "--calibrate", "centroid"]) == 2
    said = capsys.readouterr().err
    assert f"{own}: all rows are demonstrations of {memory}; give others, or omit them" in said
    assert run(["calibrate", str(memory), "--calibrate", "centroid", "-q"]) == 0
