"""Comparisons of techniques from the rows of benchmarks/techniques.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from benchmarks.table1.page import Model
from evidence.findings import rising
from evidence.recorded import no_techniques, of_table1, read_techniques, recorded
from evidence.tables import discrimination


def row(arm: str, correction: str, right: int, seed: int = 0, task: str = "sst2", **more: float) -> dict[str, Any]:
    """One arm and correction on 100 rows of a task and a seed."""
    return {
        "arm": arm,
        "correction": correction,
        "task": task,
        "seed": seed,
        "n": 100,
        "right": right,
        "auc": 0.8,
        "labels": 8,
        **more,
    }


def test_a_technique_is_compared_with_one_reading_after_the_same_correction() -> None:
    rows = [
        row("deep-thinking T=1", "none", 50, auc=0.7),
        row("deep-thinking T=1", "fitted", 70, auc=0.7),
        row("ct-kv T=1", "none", 60),
        row("ct-kv T=1", "fitted", 72),
        row("ct-kv T=1", "batch", 99),  # one reading was not corrected so
    ]
    (found,) = recorded(pd.DataFrame(rows))
    steps = {name: (each.before, pytest.approx(each.mean)) for name, each in found.differences.items()}
    assert steps == {"accuracy": (0.5, 0.1), "fitted": (0.7, 0.02), "AUC": (0.7, 0.1)}
    assert (found.cells, found.labels) == ([("sst2", 0)], 0)


def test_seeds_without_the_other_arm_are_left_out_and_tasks_count_alike() -> None:
    rows = [row("deep-thinking T=1", "none", 50, seed, task) for seed in range(2) for task in ("sst2", "mr")]
    rows += [
        row("composed T=1", "none", 60),
        row("composed T=1", "none", 80, 1),
        row("composed T=1", "none", 50, 0, "mr"),
    ]
    (found,) = recorded(pd.DataFrame(rows))
    assert set(found.cells) == {("sst2", 0), ("sst2", 1), ("mr", 0)}
    assert found.differences["accuracy"].mean == pytest.approx((0.2 + 0.0) / 2)


def test_the_nearest_mean_is_compared_with_a_bias_of_the_same_labels() -> None:
    rows = [
        row("deep-thinking T=1", "none", 50),
        row("deep-thinking T=1", "fitted", 70),
        row("centroid T=1", "centroid", 75, labels=158),
    ]
    (found,) = recorded(pd.DataFrame(rows))
    assert found.labels == 150
    assert found.differences["accuracy"].mean == pytest.approx(0.25)
    assert found.differences["fitted"].mean == pytest.approx(0.05)
    assert "batch" not in found.differences


def test_slow_choices_are_compared_by_the_answers_of_table_1() -> None:
    lines = [
        {"method": method, "task": task, "seed": seed, "plain": right, "plain batch": right + 1}
        for method, right in (("random", 4), ("lens", 6), ("herding", 8))
        for task in ("sst2", "trec")
        for seed in range(3)
    ]
    shares = pd.DataFrame(lines).replace({kind: {n: n / 10 for n in range(10)} for kind in ("plain", "plain batch")})
    answers = pd.DataFrame(lines)
    for kind in ("plain", "plain batch"):
        answers[kind] = [(np.arange(10) < number).astype(float) for number in answers[kind]]
    (found,) = of_table1(Model("model", shares, [], [], answers))
    assert (found.name, found.labels, len(found.cells)) == ("`lens` demonstrations", 1000, 6)
    assert found.differences["accuracy"].mean == pytest.approx(0.2)
    assert found.differences["batch"].before == pytest.approx(0.5)
    assert set(found.differences) == {"accuracy", "batch"}


def test_intervals_are_students_over_seeds_as_a_paired_test_gives_them() -> None:
    before, after = [50, 52, 47, 50], [60, 65, 51, 59]
    rows = [row("deep-thinking T=1", "none", right, seed) for seed, right in enumerate(before)]
    rows += [row("ct-kv T=1", "none", right, seed) for seed, right in enumerate(after)]
    change = next(recorded(pd.DataFrame(rows))).differences["accuracy"]
    expected = ttest_rel(after, before)
    low, high = expected.confidence_interval()
    assert change.p == pytest.approx(expected.pvalue)
    assert change.interval == pytest.approx((low / 100, high / 100))


def test_without_a_file_nothing_is_compared(tmp_path: Path) -> None:
    assert read_techniques(tmp_path).equals(no_techniques())
    assert not list(recorded(read_techniques(tmp_path)))


def test_lines_whose_intervals_leave_out_the_rows_are_neither_listed_nor_bold() -> None:
    rows = [
        row(f"{arm} T=1", "none", right - seed, seed)
        for seed in range(3)
        for arm, right in (("deep-thinking", 50), ("ct-kv", 90))
    ]
    found = list(recorded(pd.DataFrame(rows)))
    assert "- *" not in rising(found)
    assert "**" not in discrimination(found)
