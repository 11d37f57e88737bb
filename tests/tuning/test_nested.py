"""Nested cross-validation beside a brute-force one, on scores that are made up."""

from __future__ import annotations

import random
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from deepthink_cli.calibration.estimates import log_mean
from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.method import Method
from deepthink_cli.scoring.softmax import log_softmax
from deepthink_cli.techniques.base import Technique
from deepthink_cli.techniques.registry import technique_of
from deepthink_cli.tuning.nested import FEWEST_ROWS, LEVEL, Comparison, best, choose_nested, correctness, sign_test
from deepthink_cli.tuning.options import Grid, best_of_trajectories
from deepthink_cli.updates import Gate

ROWS, LABELS, FOLDS = 17, 3, [(0, 5, 9, 13), (1, 6, 10, 14), (2, 7, 11, 15), (3, 4, 8, 12, 16)]
TECHNIQUES = technique_of("deep-thinking"), Technique("composed")
METHODS = Method(4, Gate(0.1)), Method(4, Gate(0.01), "restarted")
GRID = Grid(METHODS, ("none", "batch"), ("random", "herding"), TECHNIQUES)


def made_up(seed: int) -> tuple[Any, Any]:
    """True labels, and the scores of every row after a memory without each set of one or two folds, by that set."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(LABELS, size=ROWS)
    scores: dict[frozenset[int], Any] = {}
    for first in range(len(FOLDS)):
        for second in range(first, len(FOLDS)):
            raw = draw.normal(size=(2, 2, 2, 4, ROWS, LABELS)) + np.array([0.8, 0, 0])
            raw[..., np.arange(ROWS), gold] += draw.normal(size=(2, 2, 2, 4, 1))
            raw[:, :, 1, 0] = raw[:, :, 0, 0]
            scores[frozenset((first, second))] = raw
    return gold, scores


def by_hand(setting: Any, raw: Any, rows: list[int], gold: Any) -> dict[int, bool]:
    """Whether each of the rows is right, by the definition of the calibration."""
    logs = raw[setting.place][rows]
    if setting.calibration == "batch":
        shares = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
        logs = shares / shares.mean(axis=0)
    return {row: int(np.argmax(values)) == gold[row] for row, values in zip(rows, logs, strict=True)}


def simplest(right: list[dict[int, bool]]) -> int:
    """The first that the best is better than by no more than one standard error of the paired differences."""
    best = max(right, key=lambda rows: sum(rows.values()))
    for number, rows in enumerate(right):
        differences = [int(best[row]) - int(rows[row]) for row in rows] + [1, -1]
        if fmean(differences) <= pstdev(differences) / len(differences) ** 0.5:
            return number
    raise AssertionError("the best is within any distance of itself")


@pytest.mark.parametrize("seed", range(6))
def test_the_nested_choice_is_that_of_a_brute_force_cross_validation(seed: int) -> None:
    gold, scores = made_up(seed)
    fold_of = {row: number for number, rows in enumerate(FOLDS) for row in rows}
    outer_raw = np.empty((2, 2, 2, 4, ROWS, LABELS))
    for number, rows in enumerate(FOLDS):
        outer_raw[..., list(rows), :] = scores[frozenset([number])][..., list(rows), :]
    expected, chosen = {}, []
    inner_arrays = []
    for held_out, rows in enumerate(FOLDS):
        others = [row for row in range(ROWS) if row not in rows]
        inner_raw = np.empty((2, 2, 2, 4, ROWS, LABELS))
        for row in others:
            inner_raw[..., row, :] = scores[frozenset([held_out, fold_of[row]])][..., row, :]
        chosen.append(simplest([by_hand(setting, inner_raw, others, gold) for setting in GRID.settings]))
        right = by_hand(GRID.settings[chosen[-1]], outer_raw, list(range(ROWS)), gold)
        expected |= {row: right[row] for row in rows}
        inner_arrays.append(correctness({"none": inner_raw[..., others, :]}, gold[others], GRID.settings))
    outer = correctness({"none": outer_raw}, gold, GRID.settings)
    found, right = choose_nested(outer, inner_arrays, FOLDS)
    assert found == tuple(chosen)
    assert right.tolist() == [expected[row] for row in range(ROWS)]


def test_the_simplest_setting_within_one_standard_error_of_the_best_is_chosen() -> None:
    """With one row more in each direction, 3 of 14 rows lost and none gained differ by 0.214 with error 0.149."""
    most = [1] * 10 + [0] * 2
    lost, exchanged = [1] * 7 + [0] * 5, [0] * 4 + [1] * 7 + [0]  # 3 rows lost, or 4 lost and 1 gained
    assert best(np.array([lost, most], dtype=bool)) == 1
    assert best(np.array([lost, [0, *[1] * 10, 0], most], dtype=bool)) == 1  # 1 row lost, 1 gained
    assert best(np.array([exchanged, most], dtype=bool)) == 1
    assert best(np.array([[1] * 9 + [0] * 3, most], dtype=bool)) == 0
    assert best(np.array([most, most], dtype=bool)) == 0


def test_a_setting_with_fewer_rows_right_than_plain_in_context_learning_is_never_chosen() -> None:
    """3 of 20 rows lost are more than one standard error; 10 lost and 6 gained are not, but leave fewer right."""
    most, plain = [1] * 14 + [0] * 6, [0] * 3 + [1] * 11 + [0] * 6
    other = [0] * 10 + [1] * 10
    assert best(np.array([plain, other, most], dtype=bool)) == 2


def test_the_preferred_setting_is_chosen_where_it_is_about_as_good_as_the_best() -> None:
    most, near, far = [1] * 12, [1] * 11 + [0], [1] * 6 + [0] * 6
    assert best(np.array([near, most, near], dtype=bool), first=2) == 2
    assert best(np.array([near, most, far], dtype=bool), first=2) == 0
    assert best(np.array([most, most, near], dtype=bool), first=2) == 0  # fewer rows right than the very first


def test_a_calibration_that_was_measured_through_the_memories_is_not_estimated_from_rows() -> None:
    raw = np.log(np.array([[0.6, 0.4], [0.7, 0.3]]))[None, None, None, None]
    grid = Grid((Method(1),), ("none", "contextual"))
    settings = grid.settings
    corrected = raw - log_mean(np.log(np.array([[0.65, 0.35]])))
    right = correctness({"none": raw, "contextual": corrected}, np.array([1, 0]), settings)
    assert right.tolist() == [[False, True], [True, True]]


def test_a_fitted_bias_has_not_seen_the_rows_that_it_labels() -> None:
    draw, parts = np.random.default_rng(4), [(0, 3, 6), (1, 4, 7), (2, 5, 8)]
    raw, gold = draw.normal(size=(1, 1, 1, 1, 9, 2)) * 2, draw.integers(2, size=9)
    settings = Grid((Method(1),), ("none", "fitted")).settings[1:]

    def labels(true: Any) -> Any:
        right = correctness({"none": raw}, true, settings, range(len(true)), parts)[0]
        return np.where(right, true, 1 - true)

    for rows in parts:
        changed = gold.copy()
        changed[list(rows)] = 1 - changed[list(rows)]
        assert labels(changed)[list(rows)].tolist() == labels(gold)[list(rows)].tolist()
        others = [row for row in range(9) if row not in rows]
        bias = CALIBRATIONS["fitted"].bias(log_softmax(raw[0, 0, 0, 0, others]), gold[others].tolist())
        expected = (log_softmax(raw[0, 0, 0, 0, list(rows)]) - bias).argmax(axis=1)
        assert labels(gold)[list(rows)].tolist() == expected.tolist()


def test_missing_candidates_are_never_chosen() -> None:
    raw = np.array([[-1.0, -2.0, -np.inf], [-3.0, -2.0, -1.0]])[None, None, None, None]
    assert correctness({"none": raw}, np.array([0, 2]), Grid((Method(1),)).settings).all()


def test_plain_in_context_learning_is_the_first_setting_and_is_tried_once() -> None:
    settings = GRID.settings
    assert (settings[0].method.iterations, settings[0].calibration, settings[0].selection) == (1, "none", "random")
    assert len(settings) == len(set(map(str, settings))) == 2 * 2 * 2 * (1 + 2 * 3)


def test_the_table_has_the_best_of_each_technique_and_method_and_plain_first() -> None:
    settings = Grid((Method(3, Gate(0.1)), Method(3, Gate(0.2)))).settings
    assert [str(setting)[:5] for setting in settings] == ["plain", *["T = 2"] * 2, *["T = 3"] * 2]
    assert best_of_trajectories(settings, [3, 5, 6, 5, 7]) == [0, 4, 1]
    corrected = Grid((Method(1),), ("none", "batch"), (None,), TECHNIQUES).settings
    assert best_of_trajectories(corrected, [3, 4, 7, 5]) == [0, 2, 1]


def test_only_the_readings_that_were_tried_are_settings() -> None:
    grid = Grid(METHODS, techniques=TECHNIQUES, readings=(3, 1))
    assert [(each.technique.name, each.method.iterations) for each in grid.settings] == [
        *[("deep-thinking", 1), ("composed", 1)],
        *[("deep-thinking", t) for t in (2, 2, 3, 3)],
    ]


@pytest.mark.parametrize(("gained", "lost"), [(1, 0), (0, 3), (6, 0), (5, 0), (8, 1), (9, 2), (40, 20), (700, 600)])
def test_the_sign_test_is_the_binomial_test_of_the_discordant_rows(gained: int, lost: int) -> None:
    expected = binomtest(gained, gained + lost, 0.5, alternative="greater").pvalue
    assert sign_test(gained, lost) == pytest.approx(expected, rel=1e-9)


def test_rows_that_agree_are_no_evidence() -> None:
    same = Comparison.of([True, False, True], [True, False, True])
    assert (same.p, same.beyond_noise, same.difference) == (1, False, 0)
    low, high = same.interval
    assert low < 0 < high


def test_the_fewest_rows_are_those_that_can_decide() -> None:
    assert sign_test(FEWEST_ROWS, 0) < LEVEL <= sign_test(FEWEST_ROWS - 1, 0)


def test_a_comparison_counts_pairs() -> None:
    comparison = Comparison.of([True] * 8 + [False] * 2, [True] * 2 + [False] * 7 + [True])
    assert (comparison.right, comparison.plain, comparison.gained, comparison.lost) == (8, 3, 6, 1)
    assert comparison.difference == pytest.approx(0.5)
    assert comparison.accuracy - comparison.baseline == pytest.approx(comparison.difference)


@pytest.mark.parametrize(("gained", "lost"), [(2, 0), (3, 1), (10, 6)])
def test_the_sign_test_shows_a_gain_of_about_as_many_rows_as_are_named(gained: int, lost: int) -> None:
    rows = Comparison(60, 50, 50, gained, lost).rows_to_show
    assert rows is not None

    def p(share: float) -> float:
        return sign_test(*(round(share * rows * count / 60) for count in (gained, lost)))

    assert p(1.1) < LEVEL < p(0.8)


def test_rows_without_a_gain_name_no_number_of_rows() -> None:
    assert Comparison(60, 50, 50, 3, 3).rows_to_show is None


def test_what_is_beyond_noise_has_an_interval_above_zero() -> None:
    for rows in (6, 16, 100):
        for gained in range(rows + 1):
            for lost in range(rows + 1 - gained):
                comparison = Comparison(rows, gained, lost, gained, lost)
                assert not comparison.beyond_noise or comparison.interval[0] > 0


def test_the_interval_holds_the_difference_in_about_95_of_100_samples() -> None:
    draw, held = random.Random(0), 0
    for _ in range(2000):
        outcomes = draw.choices([1, -1, 0], [0.25, 0.1, 0.65], k=30)
        low, high = Comparison(30, 0, 0, outcomes.count(1), outcomes.count(-1)).interval
        held += low <= 0.15 <= high
    assert 0.93 <= held / 2000 <= 0.98
