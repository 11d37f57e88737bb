"""Measures of discrimination and of the prior, against a search over constants, scikit-learn and made-up changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers.small_evidence import write_grid
from sklearn.metrics import roc_auc_score

from research.evidence import discrimination
from research.evidence.discrimination import (
    Compared,
    Pair,
    adjusted,
    areas,
    compare,
    comparisons,
    holm,
    matched_labels,
    pairwise_areas,
)
from research.evidence.load import Scores, read_evidence
from research.evidence.measures import Floats, Ints, normalised, predicted


def made_up(rows: int, labels: int, skill: float, seed: int = 0) -> Scores:
    """Scores that lean toward the true label by `skill` nats."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(labels, size=rows)
    scores = draw.normal(size=(rows, labels))
    scores[np.arange(rows), gold] += skill
    return Scores(tuple("abcd"[:labels]), normalised(scores), gold)


def shifted(scores: Scores, constants: list[float]) -> Scores:
    """The same scores with a constant for each label."""
    return Scores(scores.labels, normalised(scores.logs + np.array(constants)), scores.gold)


def pairs(before: Scores, after: Scores) -> list[Pair]:
    """Two tasks of two seeds, all alike; the dev rows are the test rows."""
    return [Pair(task, seed, before, after, before, after) for task in ("sst2", "mr") for seed in (0, 1)]


def test_matched_labels_are_those_of_the_constants_that_give_each_label_as_often() -> None:
    scores = made_up(30, 3, 1.0)
    found = []
    for constants in product(np.linspace(-3, 3, 61), repeat=2):
        labels = predicted(scores.logs + np.array([0.0, *constants]))
        if np.bincount(labels, minlength=3).tolist() == [6, 14, 10]:
            found.append(labels.tolist())
    assert found
    assert matched_labels(scores.logs, np.array([6, 14, 10])).tolist() in found


def test_the_area_is_that_of_scikit_learn_with_ties() -> None:
    scores = made_up(60, 3, 0.7)
    rounded = Scores(scores.labels, np.round(scores.logs, 1), scores.gold)
    expected = [roc_auc_score(rounded.gold == label, rounded.logs[:, label]) for label in range(3)]
    assert areas(rounded.logs, rounded.gold, range(3)).mean() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("area", [areas, pairwise_areas])
def test_the_values_of_the_rows_vary_as_the_area_of_resampled_rows(
    area: Callable[[Floats, Ints, Sequence[int]], Floats],
) -> None:
    scores, draw = made_up(200, 3, 1.0), np.random.default_rng(1)
    samples = [draw.integers(200, size=200) for _ in range(400)]
    resampled = [area(scores.logs[rows], scores.gold[rows], range(3)).mean() for rows in samples]
    values = area(scores.logs, scores.gold, range(3))
    assert values.std() / np.sqrt(200) == pytest.approx(np.std(resampled), rel=0.1)


def test_a_move_of_the_prior_changes_accuracy_alone() -> None:
    before = made_up(200, 2, 1.0)
    after = shifted(before, [2.0, 0.0])
    found = {name: compare(pairs(before, after), name) for name in discrimination.MEASURES}
    assert found["accuracy"].mean < -0.05
    assert found["accuracy"].interval[1] < 0
    for name, tolerance in (("matched", 1e-12), ("AUC", 1e-12), ("fitted", 0.02)):
        assert found[name].mean == pytest.approx(0, abs=tolerance)


def test_better_discrimination_is_seen_by_every_measure() -> None:
    before, after = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    for name in discrimination.MEASURES:
        change = compare(pairs(before, after), name)
        assert change.interval[0] > 0
        assert change.p < 0.05


def test_without_dev_rows_no_bias_is_fitted() -> None:
    scores = made_up(60, 2, 1.0)
    found = Compared("one", False, [Pair("sst2", 0, scores, scores, None, None)])
    assert set(discrimination.MEASURES) - set(found.differences) == {"fitted"}


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_comparisons_pair_the_same_task_seed_and_rows(tmp_path: Path) -> None:
    for positions in ("continued", "restarted"):
        write_grid(tmp_path / positions, positions, range(2))
    found = {each.name: each for each in comparisons(read_evidence(tmp_path))}
    assert "thinking, the paper's setting, T = 5" in found
    paired = found["thinking, the paper's setting, T = 5"].pairs
    assert [(pair.task, pair.seed) for pair in paired] == [("sst2", 0), ("sst2", 1), ("mr", 0), ("mr", 1)]
    assert all((pair.before.gold == pair.after.gold).all() for pair in paired)
    assert found["thinking, the paper's setting, T by dev rows"].labels == 20


def test_areas_between_two_labels_are_those_of_scikit_learn_and_no_constants_change_them() -> None:
    scores = made_up(120, 3, 1.0)
    expected = []
    for one, other in ((0, 1), (0, 2), (1, 2)):
        rows = np.isin(scores.gold, (one, other))
        between = scores.logs[rows, one] - scores.logs[rows, other]
        expected.append(roc_auc_score(scores.gold[rows] == one, between))
    moved = shifted(scores, [2.0, -1.0, 0.5])
    assert pairwise_areas(scores.logs, scores.gold, range(3)).mean() == pytest.approx(np.mean(expected))
    assert pairwise_areas(moved.logs, moved.gold, range(3)).mean() == pytest.approx(np.mean(expected))
    first, last = (areas(each.logs, each.gold, range(3)).mean() for each in (scores, moved))
    assert first != pytest.approx(last)


@pytest.mark.parametrize("order", [1, -1])
def test_areas_leave_out_labels_that_one_side_does_not_score(order: int) -> None:
    whole, other = made_up(120, 3, 1.0), made_up(120, 3, 2.0)
    logs = other.logs.copy()
    logs[:, 2] = -np.inf
    before, after = (whole, replace(other, logs=logs))[::order]
    pairs = [Pair("a", seed, before, after, None, None) for seed in (0, 1)]
    between, rest = (compare(pairs, name) for name in ("pairs", "AUC"))
    rows, names = np.isin(whole.gold, (0, 1)), ("before", "after")[::order]
    for name, scores in zip(names, (whole, other), strict=True):
        steps = scores.logs[rows, 0] - scores.logs[rows, 1]
        assert getattr(between, name) == pytest.approx(roc_auc_score(whole.gold[rows] == 0, steps))
    expected = [roc_auc_score(whole.gold == label, whole.logs[:, label]) for label in (0, 1)]
    assert getattr(rest, names[0]) == pytest.approx(np.mean(expected))


def test_there_are_no_areas_if_one_seed_has_a_single_label_that_both_sides_score() -> None:
    whole = made_up(120, 3, 1.0)
    single = replace(whole, logs=np.where([[True, False, False]], whole.logs, -np.inf))
    pairs = [Pair("a", seed, whole, after, None, None) for seed, after in enumerate((whole, single))]
    assert Compared("", False, pairs).differences.keys() == {"accuracy", "matched"}


def test_one_seed_of_each_task_shows_nothing() -> None:
    before, after = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    change = compare([Pair("sst2", 0, before, after, None, None)], "accuracy")
    assert (change.p, change.interval) == (1.0, (-np.inf, np.inf))


def test_each_primary_measure_is_corrected_over_comparisons_that_are_alike() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    found = [
        Compared("first", False, pairs(same, better), thinks=True),
        Compared("second", False, pairs(same, same), thinks=True),
        Compared("other", False, pairs(same, better)),
    ]
    p_values = adjusted(found)
    assert set(p_values) == {(each.name, name) for each in found for name in ("accuracy", "pairs")}
    for name in ("accuracy", "pairs"):
        p = found[0].differences[name].p
        assert p_values["first", name] == pytest.approx(2 * p)
        assert p_values["other", name] == pytest.approx(p)


def test_tasks_that_share_sentences_are_one_family_of_a_mean() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    of_tasks = {"sst2": better, "mr": same, "trec": same}
    change = compare(
        [Pair(task, seed, same, after, None, None) for task, after in of_tasks.items() for seed in (0, 1)], "accuracy"
    )
    assert change.mean == pytest.approx(change.tasks["sst2"] / 3)
    assert change.of_families == pytest.approx(change.tasks["sst2"] / 4)
