"""The verdict: an exact test, and an interval of paired differences."""

from __future__ import annotations

import random

import pytest
from scipy.stats import binomtest

from deepthink_cli.tuning.nested import FEWEST_ROWS, LEVEL, Comparison, sign_test


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
