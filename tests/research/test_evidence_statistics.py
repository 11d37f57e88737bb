"""The statistics of docs/evidence.md against cases worked out by hand."""

from __future__ import annotations

import math
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind, ttest_rel

from research.evidence import statistics
from research.evidence.measures import batch_calibrated, normalised, predicted
from research.evidence.pooled import estimate
from research.evidence.statistics import over_seeds, over_seeds_and_rows, student
from research.evidence.words import interval

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


@pytest.mark.parametrize(("end", "said"), [(-0.0004, "-0.0"), (0.0004, "+0.0"), (0.0, "0.0"), (-0.0123, "-1.2")])
def test_an_end_of_an_interval_keeps_its_sign_where_it_rounds_to_zero(end: float, said: str) -> None:
    assert interval((end, end)) == f"{said} to {said}"
