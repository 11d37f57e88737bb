"""Runs whose scores are corrected by what is fitted to labelled dev rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from conftest import Models, write_rows
from helpers.said import Captured, json_of, output, refused
from helpers.tiny import run_words

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.experiments.results import Result, read_results
from deepthink_cli.experiments.samples import read_texts, samples_path

LABELLED = ["fitted", "fitted-slope", "centroid", "head"]
Words = Callable[..., list[str]]


@pytest.fixture
def words(models: Models, tmp_path: Path) -> Words:
    """The words of a small run with T = 2."""
    command = run_words(tmp_path, models("llama"), "-T", "2", "--quiet", train=60)
    return lambda *more: [*command, *more]


def row_of(folder: Path, **wanted: object) -> Result:
    """The one row of a run whose setting has these values."""
    rows = [row for row in read_results(folder) if {**vars(row.setting), **wanted} == vars(row.setting)]
    (row,) = rows
    return row


def samples(folder: Path, row: Result) -> dict[str, list[Any]]:
    return pyarrow.parquet.read_table(samples_path(folder, row)).to_pydict()


def write_dev(folder: Path, row: Result, path: Path) -> Path:
    """Write the inputs of a dev row, with their true labels."""
    kept, texts = samples(folder, row), read_texts(folder, row.setting.rows_sha256)
    pairs = zip(kept["where"], kept["gold"], strict=True)
    return write_rows(path, [{"text": texts[where], "kind": gold} for where, gold in pairs])


@pytest.mark.plugins
@pytest.mark.parametrize("name", LABELLED)
def test_a_corrected_row_is_what_calibrate_with_the_dev_rows_and_eval_say(
    name: str, words: Words, tmp_path: Path, capsys: Captured
) -> None:
    out, memory, scored = tmp_path / "out", tmp_path / "mem.safetensors", tmp_path / "scored.jsonl"
    assert run(words("--choose-on", "dev:24", "--calibrate", f"none,{name}", "--samples")) == 0
    dev = row_of(out, part="dev", calibration=name, iteration=2)
    file, task = write_dev(out, dev, tmp_path / "dev.jsonl"), [*words()[1:5], "-q"]
    assert run(["think", *task, *words()[5:7], "-T", "2", "--keep", "all", "-o", str(memory)]) == 0
    assert run(["calibrate", str(memory), str(file), "--calibrate", name, "-q"]) == 0
    found = json_of(capsys, "eval", memory, *task, "--json", "-o", scored)
    written = list(map(json.loads, scored.read_text().splitlines()))
    for result in found["results"]:
        row = row_of(out, part="test", calibration=name, iteration=result["iteration"])
        assert row.accuracy == result["calibrated"]["stored"]["accuracy"]
        assert row.corrected is not None
        assert (row.corrected.inputs, row.corrected.counted) == (24, "rows")
        theirs = [each["calibrated"]["stored"] for each in written if each["iteration"] == result["iteration"]]
        kept = samples(out, row)
        np.testing.assert_allclose(kept["probability"], [each["probability"] for each in theirs], atol=1e-4)
        assert kept["label"] == [each["label"] for each in theirs]
    held_out = read_header(memory).metadata.calibrated.held_out  # of the last iteration
    assert dev.right == len(held_out.right)
    probabilities = sorted([*held_out.right, *held_out.wrong])
    np.testing.assert_allclose(sorted(samples(out, dev)["probability"]), probabilities, atol=1e-5)


@pytest.mark.plugins
def test_hidden_states_come_out_of_the_passes_that_score(
    words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = list[int]()
    observe = BatchedEngine.observe

    def counted(engine: BatchedEngine, memory: Any, plan: Any, *more: Any, **options: Any) -> Any:
        observed.append(len(plan.queries))
        return observe(engine, memory, plan, *more, **options)

    monkeypatch.setattr(BatchedEngine, "observe", counted)
    monkeypatch.setattr(BatchedEngine, "score", None)  # a pass without hidden states would fail
    assert run(words("--choose-on", "dev:24", "--calibrate", "none,centroid,head", "--eta", "0.01,0.1")) == 0
    assert sorted(observed) == [12] * 3 + [24] * 3  # T = 1 once, T = 2 with each eta
    assert len(read_results(tmp_path / "out")) == 2 * 2 * 2 * 3


def test_test_rows_that_are_missing_are_fitted_to_the_dev_rows_again(words: Words, tmp_path: Path) -> None:
    command = words("--choose-on", "dev:24", "--calibrate", "none,head,fitted")
    assert run(command) == 0
    path = tmp_path / "out" / "results.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"part":"dev"' in line))
    assert run(command) == 0
    assert sorted(path.read_text().splitlines(keepends=True)) == sorted(lines)


def test_rows_that_are_fitted_to_other_dev_rows_are_other_rows(words: Words, tmp_path: Path, capsys: Captured) -> None:
    for count in (24, 30):
        assert run(words("--choose-on", f"dev:{count}", "--calibrate", "head", "--at", "1")) == 0
    rows = [row for row in read_results(tmp_path / "out") if row.setting.part == "test"]
    assert [row.setting.labelled for row in rows] == [24, 30]
    assert len({row.key for row in rows}) == 2
    assert len({row.setting.labelled_sha256 for row in rows}) == 2
    shown = json_of(capsys, "report", tmp_path / "out", "--json", "--where", "part=test")["rows"]
    assert [(each["calibration"], each["labelled"]) for each in shown] == [("head", 24), ("head", 30)]
    notes = output(capsys, "report", tmp_path / "out", "--details", "--where", "part=test")
    assert "Labelled rows that corrections are fitted to: 24, 30" in notes


@pytest.mark.plugins
def test_an_ensemble_has_the_bias_of_its_mean_scores(words: Words, tmp_path: Path) -> None:
    ensemble = ("--technique", "ensemble-2", "--at", "1", "--samples")
    assert run(words("--choose-on", "dev:24", "--calibrate", "none,fitted", *ensemble)) == 0
    row = row_of(tmp_path / "out", part="test", calibration="fitted")
    kept = samples(tmp_path / "out", row)
    assert row.corrected is not None
    assert row.corrected.bias is not None
    scores = np.array(kept["scores"])
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    np.testing.assert_allclose(kept["calibrated"], logs - list(row.corrected.bias.values()), atol=1e-9)


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--calibrate", "none,head"], "--calibrate none,head: fitted, fitted-slope, head and centroid only with --"),
        (["--calibrate", "fitted"], "the labelled rows that they are fitted to; add it, or omit them"),
        (
            ["--calibrate", "head", "--choose-on", "dev:24", "--technique", "deep-thinking,ensemble-2"],
            "--calibrate head: head and centroid not with --technique ensemble-N",
        ),
        (
            ["--calibrate", "fitted", "--choose-on", "dev:19"],
            "task tiny, seed 0: its dev rows: fitted needs 20, and there are 19; give more, as in --choose-on dev:40; "
            "or omit --calibrate fitted",
        ),
        (["--calibrate", "head", "--choose-on", "dev:1"], "task tiny, seed 0: its dev rows: "),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_the_weights_are_loaded(
    more: list[str], message: str, words: Words, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.experiments.run.load", None)
    assert message in refused(capsys, *words(*more))


def test_a_task_of_own_candidates_is_refused_by_name(models: Models, capsys: Captured) -> None:
    words = "run --task copa --choose-on dev:24 --calibrate head -q -m"
    message = "task copa: has candidates of its own, and --calibrate head needs the memory's labels; use"
    assert message in refused(capsys, *words.split(), models("llama"))
