"""Measures of discrimination and of the prior, against a search over constants, scikit-learn and made-up changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from deepthink_cli.scoring.softmax import log_softmax
from research.evidence.compared import SHOWN, Compared, adjusted, by_dev, holm
from research.evidence.measures import AUC, MEASURES, Scores, matched_labels, pairwise_areas


def made_up(rows: int, labels: int, skill: float, seed: int = 0) -> Scores:
    """Scores that lean toward the true label by `skill` nats."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(labels, size=rows)
    scores = draw.normal(size=(rows, labels))
    scores[np.arange(rows), gold] += skill
    return Scores(tuple("abcd"[:labels]), log_softmax(scores), gold)


def shifted(scores: Scores, constants: list[float]) -> Scores:
    """The same scores with a constant for each label."""
    return replace(scores, logs=log_softmax(scores.logs + np.array(constants)))


def compared(before: Scores, after: Scores, name: str = "", thinks: bool = False) -> Compared:
    """Two tasks of two seeds, all alike; the dev rows are the test rows."""
    cells = [(task, seed) for task in ("sst2", "mr") for seed in (0, 1)]
    sides = [{cell: {"test": scores, "dev": scores} for cell in cells} for scores in (before, after)]
    return Compared(name, *sides, thinks=thinks)


def test_matched_labels_are_those_of_the_constants_that_give_each_label_as_often() -> None:
    scores = made_up(30, 3, 1.0)
    found = []
    for constants in product(np.linspace(-3, 3, 61), repeat=2):
        labels = (scores.logs + np.array([0.0, *constants])).argmax(axis=1)
        if np.bincount(labels, minlength=3).tolist() == [6, 14, 10]:
            found.append(labels.tolist())
    assert found
    assert matched_labels(scores.logs, np.array([6, 14, 10])).tolist() in found


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


def test_the_values_of_the_rows_vary_as_the_area_of_resampled_rows() -> None:
    scores, draw = made_up(200, 3, 1.0), np.random.default_rng(1)
    samples = [draw.integers(200, size=200) for _ in range(400)]
    resampled = [pairwise_areas(scores.logs[rows], scores.gold[rows], range(3)).mean() for rows in samples]
    values = pairwise_areas(scores.logs, scores.gold, range(3))
    assert values.std() / np.sqrt(200) == pytest.approx(np.std(resampled), rel=0.1)


def test_a_move_of_the_prior_changes_accuracy_alone() -> None:
    before = made_up(200, 2, 1.0)
    both = compared(before, shifted(before, [2.0, 0.0]))
    assert both.by("accuracy").interval[1] < -0.05
    for name, tolerance in (("matched", 1e-12), ("pairs", 1e-12), ("after a fitted bias", 0.02)):
        assert both.by(name).mean == pytest.approx(0, abs=tolerance)


def test_better_discrimination_is_seen_by_every_measure() -> None:
    both = compared(made_up(200, 2, 0.5), made_up(200, 2, 3.0))
    for name in MEASURES:
        assert both.by(name).interval[0] > 0
        assert both.by(name).p < 0.05


def test_areas_leave_out_labels_that_one_side_does_not_score() -> None:
    whole, other = made_up(120, 3, 1.0), made_up(120, 3, 2.0)
    logs = other.logs.copy()
    logs[:, 2] = -np.inf
    found = compared(whole, replace(other, logs=logs)).by("pairs")
    rows = np.isin(whole.gold, (0, 1))
    for value, scores in ((found.before, whole), (found.after, other)):
        steps = scores.logs[rows, 0] - scores.logs[rows, 1]
        assert value == pytest.approx(roc_auc_score(whole.gold[rows] == 0, steps))


def test_the_area_of_one_label_against_the_rest_is_that_of_scikit_learn() -> None:
    before, after = made_up(120, 3, 1.0), made_up(120, 3, 2.0)
    found = compared(before, after).by(AUC)
    for value, scores in ((found.before, before), (found.after, after)):
        shares = np.exp(scores.logs)
        assert value == pytest.approx(roc_auc_score(scores.gold, shares, multi_class="ovr"))


def test_one_seed_of_each_task_shows_nothing() -> None:
    sides = [{("sst2", 0): {"test": made_up(200, 2, skill)}} for skill in (0.5, 3.0)]
    change = Compared("", *sides).by("accuracy")
    assert (change.p, change.interval) == (1.0, (-np.inf, np.inf))


def test_dev_rows_choose_the_option_that_gives_most_of_them_their_label_and_the_first_of_a_tie() -> None:
    poor, good = made_up(40, 2, 0.0), made_up(40, 2, 3.0)
    options = [{("sst2", 0): {"test": test, "dev": dev}} for test, dev in ((good, poor), (poor, good), (poor, good))]
    assert by_dev(options)["sst2", 0] is options[1]["sst2", 0]
    assert by_dev([options[0], {}]) == {}


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_each_primary_measure_is_corrected_over_comparisons_that_are_alike() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    found = [
        compared(same, better, "first", thinks=True),
        compared(same, same, "second", thinks=True),
        compared(same, better, "other"),
    ]
    p_values = adjusted(found)
    for name in ("accuracy", "pairs"):
        p = found[0].differences[name].p
        assert p_values["first", name] == pytest.approx(2 * p)
        assert p_values["other", name] == pytest.approx(p)
    assert set(found[0].differences) == set(SHOWN)


def test_tasks_that_share_sentences_are_one_family_of_a_mean() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    before = {(task, seed): {"test": same} for task in ("sst2", "mr", "trec") for seed in (0, 1)}
    after = {cell: {"test": better} if cell[0] == "sst2" else parts for cell, parts in before.items()}
    change = Compared("", before, after).by("accuracy")
    assert change.mean == pytest.approx(change.tasks["sst2"] / 3)
    assert change.of_families == pytest.approx(change.tasks["sst2"] / 4)
