"""The statistics of docs/evidence.md against cases worked out by hand."""

from __future__ import annotations

import math
from statistics import stdev

import numpy as np
import pandas as pd
import pytest
from scipy.stats import permutation_test, spearmanr, ttest_1samp, ttest_ind, ttest_rel

from research.evidence import statistics
from research.evidence.cells import HARMS, HELPS, SAME, Comparison, verdict
from research.evidence.findings import interval
from research.evidence.measures import (
    batch_calibrated,
    from_uniform,
    mean_margin,
    mean_true,
    normalised,
    predicted,
    shares,
    total_variation,
)
from research.evidence.pooled import Estimate, estimate
from research.evidence.predictors import PREDICTORS, correlations
from research.evidence.statistics import (
    correlation,
    over_seeds,
    over_seeds_and_rows,
    permuted_p,
    rank_correlation,
    ranks_within,
    seed_interval,
    student,
)

RANDOM = np.random.default_rng(7)


def test_normalised_scores_are_log_probabilities_over_the_candidates() -> None:
    logs = normalised(np.array([[-1.0, -1.0], [-2.0, -2.0 - math.log(3)]]))
    assert np.exp(logs) == pytest.approx(np.array([[0.5, 0.5], [0.75, 0.25]]))


def test_batch_calibration_subtracts_the_log_of_each_labels_mean_probability() -> None:
    logs = np.log(np.array([[0.8, 0.2], [0.6, 0.4]]))
    expected = np.log(np.array([[0.8 / 0.7, 0.2 / 0.3], [0.6 / 0.7, 0.4 / 0.3]]))
    assert batch_calibrated(logs) == pytest.approx(expected)
    assert predicted(logs).tolist() == [0, 0]
    assert predicted(batch_calibrated(logs)).tolist() == [0, 1]


def test_batch_calibration_removes_a_factor_of_the_probabilities_exactly() -> None:
    logs = normalised(RANDOM.normal(size=(50, 3)))
    biased = logs + np.array([4.0, 0.0, -2.0])
    assert batch_calibrated(biased) == pytest.approx(batch_calibrated(logs))


def test_label_shares_and_their_distances() -> None:
    distribution = shares(np.array([0, 0, 0, 2]), 3)
    assert distribution.tolist() == [0.75, 0, 0.25]
    assert from_uniform(distribution) == pytest.approx((0.75 - 1 / 3 + 1 / 3 + 1 / 3 - 0.25) / 2)
    assert total_variation(distribution, distribution) == 0


def test_margin_and_log_probability_of_the_true_label() -> None:
    logs = np.array([[-1.0, -3.0, -2.0], [-5.0, -4.0, -1.0]])
    assert mean_margin(logs) == 2.0
    assert mean_true(logs, np.array([1, 2])) == -2.0


def test_a_comparison_counts_changed_answers_and_tests_each_seed() -> None:
    before = np.zeros(20, dtype=bool)
    after = before.copy()
    after[:6] = True
    comparison = Comparison.of([before, before], [after, before])
    assert (comparison.gained, comparison.lost) == (6, 0)
    assert comparison.changes[0].p == pytest.approx(2 / 2**6)  # exact McNemar: all six changes to one side
    assert comparison.verdicts == [HELPS, SAME]
    assert comparison.mean == pytest.approx(0.15)
    assert (comparison.better, comparison.worse) == (1, 0)
    assert Comparison.of([after], [before]).verdicts == [HARMS]


def test_five_changes_to_one_side_show_no_difference() -> None:
    changes = Comparison.of([np.zeros(5, dtype=bool)], [np.ones(5, dtype=bool)]).changes[0]
    assert changes.p == pytest.approx(2 / 2**5)
    assert verdict(changes) == SAME


def test_an_estimate_over_the_seeds_of_one_task_is_students_and_several_values_of_a_seed_are_one() -> None:
    seeds = RANDOM.normal(0.5, 1, size=8)
    expected = ttest_1samp(seeds, 0)
    low, high = expected.confidence_interval()
    for values, pairs in (
        (seeds, [("sst2", seed) for seed in range(8)]),
        (np.concatenate([seeds - 1, seeds + 1]), [("sst2", seed) for seed in (*range(8), *range(8))]),
    ):
        found = estimate(values, pairs)
        assert (found.mean, found.p) == pytest.approx((seeds.mean(), expected.pvalue))
        assert found.interval == pytest.approx((low, high))


def test_an_estimate_over_two_tasks_is_half_of_welchs_difference() -> None:
    first, other = RANDOM.normal(0.5, 1, size=5), RANDOM.normal(0.2, 3, size=9)
    pairs = [*(("sst2", seed) for seed in range(5)), *(("mr", seed) for seed in range(9))]
    expected = ttest_ind(first, -other, equal_var=False)  # the sum of both
    low, high = expected.confidence_interval()
    found = estimate([*first, *other], pairs)
    assert found.mean == pytest.approx((first.mean() + other.mean()) / 2)
    assert found.interval == pytest.approx((low / 2, high / 2))
    assert found.p == pytest.approx(expected.pvalue)


def test_the_variance_of_a_mean_over_seeds_and_rows_is_that_of_both_and_of_their_interaction() -> None:
    draw, seeds, rows = np.random.default_rng(3), 6, 40
    found = []
    for _ in range(400):
        of_seeds, of_rows = draw.normal(0, 0.5, size=(seeds, 1)), draw.normal(0, 1, size=(1, rows))
        found.append(over_seeds_and_rows(of_seeds + of_rows + draw.normal(0, 2, size=(seeds, rows))).estimate)
    assert np.mean(found) == pytest.approx(0.5**2 / seeds + 1 / rows + 2**2 / (seeds * rows), rel=0.1)


def test_rows_that_do_not_vary_leave_the_variance_over_seeds() -> None:
    of_seeds = RANDOM.normal(size=(5, 1))
    found, expected = over_seeds_and_rows(np.repeat(of_seeds, 30, axis=1)), over_seeds(of_seeds[:, 0])
    assert (found.estimate, found.spread) == pytest.approx((expected.estimate, expected.spread))


def test_one_seed_of_a_task_and_equal_seeds_have_no_interval() -> None:
    assert estimate([0.1, 0.2, 0.3], [("sst2", 0), ("sst2", 1), ("mr", 0)]).interval is None
    assert estimate([0.1, 0.1], [("sst2", 0), ("sst2", 1)]).interval is None


def test_a_task_with_one_seed_has_no_interval_and_a_missing_statistic_neither() -> None:
    assert seed_interval([("a", 0), ("a", 1), ("b", 0)], lambda chosen: 1.0) is None
    assert seed_interval([("a", 0), ("a", 1)], lambda chosen: math.nan) is None


def test_seeds_are_resampled_within_their_tasks() -> None:
    pairs = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert seed_interval(pairs, lambda chosen: sum(pairs[place][0] == "a" for place in chosen) / len(chosen)) == (
        0.5,
        0.5,
    )


@pytest.mark.parametrize(("interval", "sign"), [((0.1, 0.2), 1), ((-0.2, -0.1), -1), ((0.0, 0.2), 0), (None, 0)])
def test_an_estimate_has_a_sign_only_if_its_interval_excludes_zero(
    interval: tuple[float, float] | None, sign: int
) -> None:
    assert Estimate(0.15, interval).sign == sign


def test_rank_correlation_is_spearmans_with_ties() -> None:
    first, second = RANDOM.integers(5, size=40).astype(float), RANDOM.normal(size=40)
    assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic)
    assert math.isnan(rank_correlation(np.ones(4), second[:4]))


def test_ranks_within_groups_do_not_see_differences_between_groups() -> None:
    groups = ["a"] * 3 + ["b"] * 3
    low_to_high, high_to_low = np.array([1.0, 2, 3, 101, 102, 103]), np.array([13.0, 12, 11, 113, 112, 111])
    assert rank_correlation(low_to_high, high_to_low) > 0.5
    assert correlation(ranks_within(low_to_high, groups), ranks_within(high_to_low, groups)) == pytest.approx(-1)


def test_a_predictor_that_does_not_vary_or_is_unknown_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "ROUNDS", 50)
    cells = pd.DataFrame({name: np.arange(6.0) for name in (*PREDICTORS, "gain", "calibrated_gain", "eta")})
    cells = cells.assign(task=list("aabbcc"), seed=[0, 1] * 3, setting="continued", drift=math.nan, margin=1.0)
    names = [each.name for each in correlations(cells)]
    assert set(PREDICTORS) - set(names) == {"drift", "margin"}
    assert all(each.overall == pytest.approx(1) and each.pairs == 6 for each in correlations(cells))


def test_a_change_of_spread_is_that_of_the_standard_deviations_and_its_interval_is_of_a_paired_t_test() -> None:
    generator = np.random.default_rng(1)
    before, after = ([generator.normal(scale=scale, size=5) for _ in range(4)] for scale in (1.0, 2.0))
    found = statistics.spreads(before, after)
    first, last = ([stdev(values) for values in side] for side in (before, after))
    expected = ttest_rel(last, first).confidence_interval()
    assert (found.before, found.after) == pytest.approx((np.mean(first), np.mean(last)))
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert statistics.spreads(before[:1], after[:1]).interval == (-math.inf, math.inf)


def test_students_interval_and_p_are_those_of_the_table_of_t() -> None:
    interval, p = student(0.02, 0.01, 4)
    assert p == pytest.approx(0.1161, abs=1e-4)
    assert interval == pytest.approx((0.02 - 2.776 * 0.01, 0.02 + 2.776 * 0.01), abs=1e-5)
    assert student(0.1, 0.01, 0) == ((-math.inf, math.inf), 1.0)  # one seed of each task
    assert student(0.0, 0.0, 4) == ((0.0, 0.0), 1.0)


def test_p_of_a_correlation_within_tasks_is_that_of_scipys_permutations_and_seeds_stay_together() -> None:
    first, second = np.random.default_rng(2).normal(size=(2, 7))
    expected = permutation_test((first,), lambda order: correlation(order, second), permutation_type="pairings")
    once = permuted_p([("a", seed, 0) for seed in range(7)], lambda order: correlation(first, second[order]))
    assert once == pytest.approx(expected.pvalue, abs=0.04)
    cells = [("a", seed, group) for group in range(5) for seed in range(7)]
    again = permuted_p(cells, lambda order: correlation(np.tile(first, 5), np.tile(second, 5)[order]))
    assert again == pytest.approx(expected.pvalue, abs=0.04)
    assert permuted_p(cells[1:], lambda order: 0.0) is None
    assert permuted_p(cells, lambda order: math.nan) is None


def test_seeds_change_places_within_their_own_tasks_alone() -> None:
    cells = [(task, seed, 0) for task in ("a", "b") for seed in range(4)]

    def differs_between_tasks(order: np.ndarray) -> float:
        return float(order[:4].mean() - order[4:].mean())

    assert permuted_p(cells, differs_between_tasks) == 1  # the same in every round


@pytest.mark.parametrize(("end", "said"), [(-0.0004, "-0.0"), (0.0004, "+0.0"), (0.0, "0.0"), (-0.0123, "-1.2")])
def test_an_end_of_an_interval_keeps_its_sign_where_it_rounds_to_zero(end: float, said: str) -> None:
    assert interval((end, end)) == f"{said} to {said}"
