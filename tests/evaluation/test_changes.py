"""Changes since T = 1 are counted row by row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from deepthink_cli.evaluation.metrics import Answer, ChangeTally


def test_rows_are_fixed_broken_or_changed_to_another_wrong_label() -> None:
    counted = ChangeTally()
    for gold, first, later in ["aab", "aba", "abc", "aaa", "abb", "aba"]:
        counted.add(gold, Answer(first, 0.0), Answer(later, 0.0))
    result = counted.result()
    assert (result.changed, result.fixed, result.broken) == (4, 2, 1)


def test_the_change_of_the_log_probability_is_paired() -> None:
    random = np.random.default_rng(1)
    first = np.log(random.uniform(0.01, 1, 40))
    later = first + random.normal(0.05, 0.01, 40)
    counted = ChangeTally()
    for before, after in zip(first.tolist(), later.tolist(), strict=True):
        counted.add("a", Answer("a", before), Answer("a", after))
    result, test = counted.result(), stats.ttest_rel(later, first)
    assert result.log_probability == pytest.approx((later - first).mean())
    assert result.log_probability_ci95 == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_a_single_row_has_no_interval() -> None:
    counted = ChangeTally()
    counted.add("a", Answer("b", -1.5), Answer("a", -0.5))
    assert counted.result().log_probability == 1
    assert counted.result().log_probability_ci95 is None
