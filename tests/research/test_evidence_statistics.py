"""The statistics of docs/evidence.md against cases worked out by hand."""

from __future__ import annotations

import math
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import ttest_rel

from research.evidence import statistics
from research.evidence.statistics import over_seeds_and_rows, student
from research.evidence.words import interval


def test_the_variance_of_a_mean_over_seeds_and_rows_is_that_of_both_and_of_their_interaction() -> None:
    draw, seeds, rows = np.random.default_rng(3), 6, 40
    found = []
    for _ in range(400):
        of_seeds, of_rows = draw.normal(0, 0.5, size=(seeds, 1)), draw.normal(0, 1, size=(1, rows))
        found.append(over_seeds_and_rows(of_seeds + of_rows + draw.normal(0, 2, size=(seeds, rows))).estimate)
    assert np.mean(found) == pytest.approx(0.5**2 / seeds + 1 / rows + 2**2 / (seeds * rows), rel=0.1)


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
