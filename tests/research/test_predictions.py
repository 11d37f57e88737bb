"""docs/second-model.md: what was found decides a prediction by the rule that was written down before."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from pathlib import Path

import pytest
from helpers.small_evidence import ITERATIONS, made_up_scores, write_arm, write_grid, write_row

from research.evidence.arms import COMPOSED, CONTEXT_TUNING
from research.evidence.discrimination import LARGE_STEP, PAPER_BY_DEV, Difference
from research.evidence.load import read_evidence
from research.evidence.methods import NEAREST_MEAN
from research.evidence.predictions import HIT, MISS, OPEN, PREDICTIONS, WITHIN_WINDOWS, Results, outcomes, page
from research.table1.runs import TASKS

RULES = dict(enumerate((rule for _, rule in PREDICTIONS), start=1))


class Found(Results):
    """Results with given differences from 0.5, by comparison and measure, whatever the tasks."""

    def __init__(self, differences: dict[tuple[str, str], tuple[float, float]]) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        object.__setattr__(self, "differences", differences)

    def difference(self, name: str, measure: str, tasks: Collection[str] = TASKS) -> Difference:
        change, low = self.differences[name, measure]  # type: ignore[attr-defined]
        return Difference(0.5, 0.5 + change, change, (low, change + 0.01), 0.5)


def of_paper(measure: str, change: float, low: float = -1.0) -> Found:
    return Found({(PAPER_BY_DEV, measure): (change, low), (PAPER_BY_DEV, "accuracy"): (change, low)})


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
    assert RULES[6](Found({(LARGE_STEP, "AUC"): (change, change)})).verdict == verdict


@pytest.mark.parametrize(
    ("change", "area", "verdict"), [(0.03, 0.019, HIT), (0.02, 0.0, OPEN), (0.03, -0.02, OPEN), (-0.01, 0.0, MISS)]
)
def test_composed_demonstrations_must_gain_three_points_and_keep_the_area(
    change: float, area: float, verdict: str
) -> None:
    found = Found({(COMPOSED, "accuracy"): (change, change), (COMPOSED, "AUC"): (area, area)})
    assert RULES[8](found).verdict == verdict


@pytest.mark.parametrize(("change", "verdict"), [(-0.02, HIT), (-0.04, OPEN), (-0.05, MISS)])
def test_the_nearest_mean_may_be_two_points_below_a_fitted_bias(change: float, verdict: str) -> None:
    assert RULES[9](Found({(NEAREST_MEAN, "fitted"): (change, change)})).verdict == verdict


@pytest.mark.parametrize(("change", "verdict"), [(0.11, HIT), (0.05, OPEN), (0.02, MISS)])
def test_context_tuning_must_gain_ten_points(change: float, verdict: str) -> None:
    assert RULES[10](Found({(CONTEXT_TUNING, "batch"): (change, change)})).verdict == verdict


def test_techniques_are_judged_on_their_tasks_alone(tmp_path: Path) -> None:
    for arm in ("deep-thinking", "ct-kv", "composed"):
        for task, bias in (("sst2", 0.0), ("agnews", 3.0)):
            write_arm(tmp_path, f"{arm} T=1", made_up_scores(40, arm, bias if arm == "composed" else 1.0), task)
    results = Results(read_evidence(tmp_path))
    both, within = (results.difference(COMPOSED, "accuracy", tasks) for tasks in (TASKS, WITHIN_WINDOWS))
    assert both.mean != within.mean
    assert RULES[8](results).found.startswith(f"accuracy {100 * within.mean:+.1f} ")
    with pytest.raises(KeyError, match="ct-kv"):
        RULES[10](results)  # not run on TREC
    for arm, bias in (("deep-thinking", 1.0), ("ct-kv", -4.0)):
        write_arm(tmp_path, f"{arm} T=1", made_up_scores(40, f"{arm} on trec", bias), "trec")
    results = Results(read_evidence(tmp_path))
    change = results.difference(CONTEXT_TUNING, "batch", ["trec"])
    assert change.mean != results.difference(CONTEXT_TUNING, "batch").mean
    assert RULES[10](results).found == f"batch {100 * change.before:.1f} to {100 * change.after:.1f}"


def test_the_page_decides_what_was_run_and_names_what_was_not(tmp_path: Path) -> None:
    write_grid(tmp_path / "continued", "continued", seeds=(0, 1))
    for arm, bias in (("deep-thinking T=1", 3.0), ("composed T=1", 0.0)):
        write_arm(tmp_path, arm, made_up_scores(40, "of both", bias))
    results = Results(read_evidence(tmp_path))
    found = [None if each is None else each.verdict for each in outcomes(results)]
    assert found[7] == HIT
    assert found[6] is None
    assert None not in found[:3]
    text = page(results, results)
    missing = found.count(None)
    assert f"Of 11 predictions: hits {found.count(HIT)}, " in text
    assert f"not run {missing}" in text


def test_hits_that_say_where_a_gain_comes_from_say_little_where_none_is_shown(tmp_path: Path) -> None:
    for setting, seed, t, eta in product(("continued", "restarted"), range(2), ITERATIONS, (0.01, 0.1)):
        for part, number in (("test", 40), ("dev", 20)):
            scores = made_up_scores(number, f"{seed}{part}", bias=1.0)
            write_row(tmp_path / setting, scores, seed=seed, t=t, eta=eta, part=part, positions=setting)
    alike = Results(read_evidence(tmp_path))
    assert [each and each.verdict for each in outcomes(alike)][1:5:3] == [HIT, HIT]
    assert "; 2 of the hits say little, since no gain of thinking is shown.**" in page(alike, alike)
    for setting, seed, part, eta in product(("continued", "restarted"), range(4), ("test", "dev"), (0.01, 0.1)):
        for t in ITERATIONS:
            scores = made_up_scores(40, part, bias=3.0 if t == 1 else 0.01 * seed)
            place = {"seed": seed, "t": t, "eta": eta, "part": part, "positions": setting}
            write_row(tmp_path / "gaining" / setting, scores, **place)
    gaining = Results(read_evidence(tmp_path / "gaining"))
    assert "say little" not in page(gaining, gaining)
