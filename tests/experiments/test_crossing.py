"""Runs that cross T and eta with ways to choose demonstrations, techniques and corrections of the scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from conftest import Models
from helpers.said import Captured, json_of, refused
from helpers.tiny import run_files, run_words
from scipy.special import log_softmax, logsumexp

from deepthink_cli.calibration import registry
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import Result, read_results
from deepthink_cli.experiments.samples import samples_path
from deepthink_cli.plugins.context_tuning.technique import ContextTuning


@pytest.fixture
def words(models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The words of a small run with T = 2, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = run_words(tmp_path, models("llama"), "-T", "2", "--quiet")
    return lambda *more: [*command, *more]


def rows_of(folder: Path) -> list[Result]:
    return read_results(folder / "out")


def samples(folder: Path, row: Result) -> dict[str, list[object]]:
    return pyarrow.parquet.read_table(samples_path(folder / "out", row)).to_pydict()


def test_every_method_calibration_and_choice_has_its_own_rows(words: Callable[..., list[str]], tmp_path: Path) -> None:
    crossed = ["--demos-by", "random,herding", "--calibrate", "none,contextual"]
    assert (
        run(words(*crossed, "--technique", "deep-thinking,repeat-2,ensemble-2", "--seeds", "2", "--eta", "0.01,0.1"))
        == 0
    )
    settings = [row.setting for row in rows_of(tmp_path)]
    assert len(settings) == len({setting.key for setting in settings}) == 2 * 2 * 3 * 2 * 2 * 2
    assert {setting.sampling for setting in settings} == {"random", "herding"}
    assert {setting.technique for setting in settings} == {None, "repeat-2", "ensemble-2"}
    assert {setting.calibration for setting in settings} == {None, "contextual"}
    assert {(setting.pool_size, setting.balanced) for setting in settings} == {(1000, False)}


def test_a_corrected_row_rests_on_the_raw_scores_beside_it(
    words: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch calibration as Zhou et al. (2023) define it, from the stored raw scores."""
    monkeypatch.setattr(registry, "FEWEST", 12)  # the rows of the task
    assert run(words("--calibrate", "none,batch", "--samples")) == 0
    rows = rows_of(tmp_path)
    raw = {row.setting.iteration: row for row in rows if row.setting.calibration is None}
    for row in (row for row in rows if row.setting.calibration == "batch"):
        stored, plain = samples(tmp_path, row), samples(tmp_path, raw[row.setting.iteration])
        assert stored["scores"] == plain["scores"]
        logs = log_softmax(np.array(stored["scores"]), axis=1)
        bias = logsumexp(logs, axis=0) - np.log(len(logs))
        np.testing.assert_allclose(stored["calibrated"], logs - bias, atol=1e-12)
        labels = [stored["candidates"][n][place] for n, place in enumerate((logs - bias).argmax(axis=1))]
        assert stored["label"] == labels
        assert row.right == sum(label == gold for label, gold in zip(labels, stored["gold"], strict=True))
        assert (row.corrected.inputs, row.corrected.counted) == (12, "rows")
        assert list(row.corrected.bias.values()) == pytest.approx(bias)


def test_an_ensemble_is_the_mean_over_the_orders_of_its_demonstrations(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert run(words("--technique", "deep-thinking,ensemble-2", "--samples")) == 0
    plain, ensemble = (
        next(row for row in rows_of(tmp_path) if row.setting.technique == name and row.setting.iteration == 2)
        for name in (None, "ensemble-2")
    )
    other = next(iter(_other_order(words, tmp_path)))
    mean = (np.array(samples(tmp_path, plain)["scores"]) + np.array(other["scores"])) / 2
    np.testing.assert_allclose(samples(tmp_path, ensemble)["scores"], mean, atol=1e-5)


def _other_order(words: Callable[..., list[str]], tmp_path: Path) -> list[dict[str, list[object]]]:
    """The samples at T = 2 of the same demonstrations in the order of seed 1."""
    _, _, task, _, data, _, model, *_ = words()
    fields = {"models": model, "tasks": task, "data_dir": data, "iterations": 2, "orders": 1}
    (tmp_path / "order.yaml").write_text(json.dumps(fields))
    study = ["study", "run", str(tmp_path / "order.yaml"), "-o", str(tmp_path / "order"), "--samples", "-q"]
    assert run(study) == 0
    return [
        pyarrow.parquet.read_table(samples_path(tmp_path / "order", row)).to_pydict()
        for row in read_results(tmp_path / "order")
        if row.setting.iteration == 2
    ]


def test_context_tuning_has_one_row_beside_those_of_thinking(words: Callable[..., list[str]], tmp_path: Path) -> None:
    assert run(words("--technique", "deep-thinking,ct-kv:steps=2", "--calibrate", "none,contextual")) == 0
    tuned = [row for row in rows_of(tmp_path) if row.setting.technique]
    assert [(row.setting.iteration, row.setting.calibration) for row in tuned] == [(1, None), (1, "contextual")]
    assert str(tuned[0].setting.technique).startswith("ct-kv steps=2 lr=0.001")


def test_a_trained_memory_whose_rows_are_there_is_not_trained_again(
    words: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = words("--technique", "deep-thinking,ct-kv:steps=1")
    assert run(command) == 0
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"technique"' in line]
    assert 0 < len(kept) < len(lines)
    (tmp_path / "out" / "results.jsonl").write_text("".join(kept))
    monkeypatch.setattr(ContextTuning, "training", None)  # a training would fail
    assert run(command) == 0
    assert sorted((tmp_path / "out" / "results.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)


def test_demonstrations_are_chosen_once_and_an_interrupted_run_continues(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    command = words("--demos-by", "k-center,entropy", "--seeds", "2", "--samples")
    assert run(command) == 0
    whole = run_files(tmp_path / "out")
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out" / "results.jsonl").write_text("".join(lines[:3]))
    assert run(command) == 0
    assert sorted((tmp_path / "out" / "results.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)
    assert set(run_files(tmp_path / "out")) == set(whole)


def test_dev_rows_exclude_the_chosen_demonstrations(words: Callable[..., list[str]], tmp_path: Path) -> None:
    assert run(words("--demos-by", "herding", "--choose-on", "dev", "--calibrate", "none,contextual", "--samples")) == 0
    dev = [row for row in rows_of(tmp_path) if row.setting.part == "dev"]
    assert len(dev) == 4
    assert len(samples(tmp_path, dev[0])["where"]) == 12


def test_a_dry_run_counts_what_is_still_to_be_chosen(words: Callable[..., list[str]], capsys: Captured) -> None:
    crossed = ("--demos-by", "random,herding", "--technique", "deep-thinking,ensemble-3", "--calibrate", "none,domain")
    plan = json_of(capsys, *words(*crossed), "--dry-run", "--json")
    assert (plan["jobs"], plan["rows"]) == (4, 16)
    assert plan["inputs"] == 2 * (1 + 3) * 2 * 12
    assert plan["demos_by"] == ["random", "herding"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--demos-by", "herdin"], "--demos-by herdin: use random, "),
        (["--demos-by", "herding,herding"], "--demos-by herding,herding: herding is duplicated; name each once"),
        (["--calibrate", "none,bach"], "--calibrate bach: use none, contextual"),
        (["--technique", "repeat-1"], "--technique repeat-1: use deep-thinking"),
        (["--technique", "ct-kv,ct-kv:steps=5"], "ct-kv is duplicated; name each once"),
        (["--demos-by", "herding", "--shots", "50"], "--shots 50: tiny has 20 rows to choose from"),
        (["--demos-by", "herding", "--shots", "0"], "--shots 0: a number of demonstrations, 1 or more"),
        (
            ["--calibrate", "none,batch", "--limit", "19"],
            "--calibrate batch: is estimated from 20 rows or more, not from",
        ),
    ],
)
def test_bad_input_is_one_line(
    more: list[str], message: str, words: Callable[..., list[str]], capsys: Captured
) -> None:
    line = refused(capsys, *words(*more))
    assert message in line
