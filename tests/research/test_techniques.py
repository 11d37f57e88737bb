"""Techniques and corrections beside classifiers: figures by other means, and runs that continue."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import Models
from helpers.said import Captured
from helpers.task_rows import write_task_rows

from deepthink_cli import Method, load_model, predict, think
from deepthink_cli.calibration.registry import CALIBRATIONS, choices
from deepthink_cli.engine.opening import find_model
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.events import silent
from deepthink_cli.experiments.results import from_bits
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.scoring.softmax import log_softmax
from deepthink_cli.selection.store import Store
from deepthink_cli.techniques.registry import TECHNIQUES
from deepthink_cli.updates.rules import Gate
from research.table1 import rivals
from research.techniques import (
    ARMS,
    Case,
    Cost,
    Meter,
    Outcome,
    area,
    check_rows,
    main,
    measured,
    rows_of,
    samples_path,
    table,
    write_samples,
)

COMMON = {"limit": 24, "etas": (0.1,), "positions": ("continued",), "choose_on": "dev:20"}


@pytest.fixture
def case(models: Models, tmp_path: Path) -> Case:
    spec = find_model(ModelOptions.checked(model=str(models("llama")), device="cpu"), silent)
    data = write_task_rows(tmp_path / "data", ["trec"])
    common = {**COMMON, "data_dir": str(data), "calibrations": ("none",), "shots": (4,)}
    return Case(Meter(load_model(spec).model), spec, "trec", 0, common)


def test_every_technique_of_the_registry_is_an_arm() -> None:
    for family, _ in TECHNIQUES.items():
        assert any(name.startswith(family) for name in ARMS)


def test_the_area_is_the_share_of_pairs_in_the_right_order_averaged_over_labels() -> None:
    draw = np.random.default_rng(0)
    scores, gold = draw.normal(size=(40, 3)), draw.integers(0, 3, size=40)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    areas = []
    for label in range(3):
        pairs = product(shares[gold == label, label], shares[gold != label, label])
        areas.append(np.mean([float(a > b) for a, b in pairs]))
    assert area(scores, gold.tolist()) == pytest.approx(np.mean(areas))


def test_an_arm_scores_as_think_and_predict_do_and_counts_what_it_reads(case: Case) -> None:
    job, engine = case.job(), PackedEngine(case.engine.model)
    *_, memory = think(engine, job.demonstrations, Method(5, Gate(0.1)))
    test = list(job.queries("test"))
    expected = [list(each.scores.values()) for each in predict(engine, memory, test)]
    outcomes = {each.correction: each for each in ARMS["deep-thinking T=5"](case)}
    of_scores = {name for name, each in CALIBRATIONS.items() if not each.of_states}
    assert outcomes.keys() == {*choices(), *of_scores}
    raw, batch, fitted = (outcomes[name] for name in ("none", "batch", "fitted"))
    np.testing.assert_allclose(raw.scores, expected, atol=1e-4)
    logs = log_softmax(expected)
    np.testing.assert_allclose(batch.scores, logs - np.log(np.exp(logs).mean(axis=0)), atol=1e-4)
    assert (raw.labels, batch.labels, fitted.labels) == (4, 4, 24)
    assert raw.making.tokens == 5 * len(job.demonstrations.token_ids) == 5 * raw.length
    assert min(fitted.scoring.tokens, outcomes["pmi"].scoring.tokens) > raw.scoring.tokens == batch.scoring.tokens


@pytest.mark.soak  # hundreds of steps of training
def test_training_counts_its_passes_forward_and_back(case: Case) -> None:
    (raw, *_) = ARMS["ct-kv T=1"](case)
    assert raw.making.tokens > 3 * 200 * len(raw.gold)


def test_a_second_run_adds_nothing_and_the_table_has_means(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    out, arms = tmp_path / "arms" / "rows.jsonl", ["TF-IDF, demonstrations", "mean hidden states, dev rows too"]
    words = ["--model", str(case.spec.id), "--data-dir", case.common["data_dir"], "--tasks", "trec", "--seeds", "2"]
    words += ["--limit", "24", "--dev-rows", "20", "-o", str(out), "--arms", *arms]
    monkeypatch.setattr(sys, "argv", ["techniques.py", *words])
    main()
    first = out.read_bytes()
    out.write_bytes(first + b'{"torn')
    main()
    assert out.read_bytes() == first
    assert (tmp_path / "arms.parquet").exists()
    rows = rows_of(out)
    assert [(row["arm"], row["seed"]) for row in rows] == [(arm, seed) for seed in range(2) for arm in arms]
    mean = 100 * sum(row["right"] for row in rows[::2]) / 48
    assert f"| {arms[0]} | 2 | {mean:.1f} |" in table(rows)
    assert capsys.readouterr().out.endswith(f"{table(rows)}\n")
    monkeypatch.setattr(sys, "argv", ["techniques.py", *words, "--eta", "0.2"])
    with pytest.raises(SystemExit, match=r"has rows with eta 0\.1, not 0\.2"):
        main()


def test_rows_are_refused_if_their_samples_do_not_give_them(tmp_path: Path) -> None:
    scores = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    outcomes = [
        Outcome(name, given, [1, 0, 0], 8, 100, Cost(), Cost()) for name, given in (("none", scores), ("pmi", -scores))
    ]
    out = tmp_path / "arms" / "rows.jsonl"
    write_samples(samples_path(out, "arm", "sst2", 0), ["bad", "good"], outcomes)
    rows = [{"arm": "arm", "task": "sst2", "seed": 0, **measured(each)} for each in outcomes]
    assert [(row["right"], row["n"]) for row in rows] == [(2, 3), (1, 3)]
    check_rows(rows, out)
    with pytest.raises(SystemExit, match=r"arm, sst2, 1, none is not among the scores in arms\.parquet"):
        check_rows([*rows, {**rows[0], "seed": 1}], out)
    with pytest.raises(SystemExit, match="right of arm, sst2, 0, pmi is 2, but 1 by the scores"):
        check_rows([rows[0], {**rows[1], "right": 2}], out)
    with pytest.raises(SystemExit, match=r"auc of arm, sst2, 0, none is 0\.25, but 0\.75 by the scores"):
        check_rows([{**rows[0], "auc": 0.25}], out)


def test_costs_add_up() -> None:
    assert Cost(3, 1.0) + Cost(4, 0.5) - Cost(1, 0.5) == Cost(6, 1.0)
    assert Cost(10, 1.0).share(0.25) == Cost(2, 0.25)


def test_the_classifiers_of_table_1_see_the_labels_of_the_methods_and_continue(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = rivals.jobs_of(case.spec, case.engine, "trec", Path(case.common["data_dir"]))
    rows = list(rivals.measure(case.engine, jobs[0], Store(tmp_path / "store")))
    shots = len(jobs[0].demonstrations.examples)
    dev = len(list(jobs[0].queries("dev")))
    assert [row["labels"] for row in rows] == [shots, shots + dev] * 2
    assert [sum(from_bits(row["correct"], row["n"])) for row in rows] == [row["right"] for row in rows]
    out = tmp_path / "table1" / "model" / "rivals.jsonl"
    monkeypatch.setattr(rivals, "TASKS", ("trec",))
    given = ["rivals", "--model", str(case.spec.id), "--data-dir", case.common["data_dir"], "-o", str(out)]
    monkeypatch.setattr(sys, "argv", given)
    out.parent.mkdir(parents=True)
    rivals.main()
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["right"] for row in written[:4]] == [row["right"] for row in rows]
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:5]))
    (out.parent.parent / "model.parquet").unlink()
    rivals.main()
    assert [row["right"] for row in map(json.loads, out.read_text().splitlines())] == [row["right"] for row in written]
