"""docs/second-model.md: what was found decides a prediction by the rule that was written down before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.small_evidence import write_grid

from evidence import statistics
from evidence.discrimination import LARGE_STEP, PAPER_BY_DEV, Difference
from evidence.load import read_evidence
from evidence.predictions import HIT, MISS, OPEN, PREDICTIONS, Results, outcomes, page

RULES = dict(enumerate((rule for _, rule in PREDICTIONS), start=1))


class Found(Results):
    """Results with given differences from 0.5, by comparison and measure, and given rows of the techniques."""

    def __init__(self, differences: dict[tuple[str, str], tuple[float, float]], rows: list[dict[str, Any]]) -> None:
        super().__init__(None, pd.DataFrame(rows))  # type: ignore[arg-type]
        object.__setattr__(self, "differences", differences)

    def difference(self, name: str, measure: str) -> Difference:
        change, low = self.differences[name, measure]  # type: ignore[attr-defined]
        return Difference(0.5, 0.5 + change, change, (low, change + 0.01), 0.5)


def of_paper(measure: str, change: float, low: float = -1.0) -> Found:
    return Found({(PAPER_BY_DEV, measure): (change, low), (PAPER_BY_DEV, "accuracy"): (change, low)}, [])


def row(arm: str, correction: str, right: int, task: str = "trec", auc: float = 0.9) -> dict[str, Any]:
    given = {"arm": arm, "correction": correction, "task": task, "seed": 0, "n": 100, "labels": 8}
    return {**given, "right": right, "auc": auc}


@pytest.mark.parametrize(
    ("number", "measure", "change", "low", "verdict"),
    [
        (1, "AUC", 0.009, 0.001, HIT),
        (1, "AUC", -0.02, -0.03, OPEN),
        (1, "AUC", 0.01, 0.001, MISS),
        (1, "AUC", 0.02, -0.001, OPEN),
        (2, "matched", 0.009, 0.001, HIT),
        (2, "matched", 0.02, 0.001, MISS),
        (2, "matched", -0.02, -0.03, OPEN),
        (3, "accuracy", 0.03, 0.01, HIT),
        (3, "accuracy", -0.02, -0.03, OPEN),
        (3, "accuracy", 0.05, 0.01, MISS),
        (5, "fitted", 0.014, 0.001, HIT),
        (5, "fitted", 0.015, 0.001, MISS),
        (5, "fitted", 0.015, -0.001, OPEN),
    ],
)
def test_the_papers_setting_is_judged_by_its_difference_and_interval(
    number: int, measure: str, change: float, low: float, verdict: str
) -> None:
    assert RULES[number](of_paper(measure, change, low)).verdict == verdict


@pytest.mark.parametrize(("change", "verdict"), [(-0.05, HIT), (-0.04, OPEN), (0.0, MISS)])
def test_a_large_step_must_lose_five_points_of_the_area(change: float, verdict: str) -> None:
    assert RULES[6](Found({(LARGE_STEP, "AUC"): (change, change)}, [])).verdict == verdict


@pytest.mark.parametrize(("raw", "composed", "verdict"), [(50, 53, HIT), (50, 52, OPEN), (50, 49, MISS)])
def test_composed_demonstrations_must_gain_three_points(raw: int, composed: int, verdict: str) -> None:
    others = [row("deep-thinking T=1", "none", 90, "agnews"), row("composed T=1", "none", 0, "agnews")]  # too long
    found = Found({}, [row("deep-thinking T=1", "none", raw), row("composed T=1", "none", composed), *others])
    assert RULES[8](found).verdict == verdict


@pytest.mark.parametrize(("after", "verdict"), [(61, HIT), (55, OPEN), (52, MISS)])
def test_context_tuning_is_judged_on_trec_alone(after: int, verdict: str) -> None:
    before = [row("deep-thinking T=1", "batch", 50), row("deep-thinking T=1", "batch", 90, "sst2")]
    assert RULES[10](Found({}, [*before, row("ct-kv T=1", "batch", after)])).verdict == verdict


def test_the_page_decides_what_was_run_and_names_what_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "ROUNDS", 50)
    write_grid(tmp_path / "continued", "continued", seeds=(0, 1))
    techniques = pd.DataFrame([row("deep-thinking T=1", "none", 50), row("composed T=1", "none", 60)])
    results = Results(read_evidence(tmp_path), techniques)
    found = [None if each is None else each.verdict for each in outcomes(results)]
    assert found[7] == HIT
    assert found[6] is None
    assert None not in found[:3]
    text = page(results, results)
    missing = found.count(None)
    assert f"Of 11 predictions: hits {found.count(HIT)}, " in text
    assert f"not run {missing}" in text
    assert "every setting has 0, 1 (4 task-seed pairs). Five seeds were announced." in text
