"""Significance agrees with textbook values and with scipy's own tests."""

from __future__ import annotations

import math

import pytest

from deepthink_cli.evaluation.metrics import mcnemar
from deepthink_cli.report.significance import Paired, Spread


def test_the_standard_deviation_is_the_samples() -> None:
    assert Spread.of([2, 4, 4, 4, 5, 5, 7, 9]) == Spread(5.0, pytest.approx(math.sqrt(32 / 7)), 8)
    assert Spread.of([0.3]) == Spread(0.3, None, 1)


def test_the_interval_is_students() -> None:
    # Mean 3, sd sqrt(2.5), t(4 degrees of freedom, 97.5 %) = 2.776445.
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert Paired((1, 2, 3, 4, 5)).ci95 == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert Paired((0.1,)).ci95 is None


@pytest.mark.parametrize("values", [[0.5, 0.5], [-0.03, -0.03], [0.0] * 10])
def test_equal_values_have_no_interval(values: list[float]) -> None:
    assert Paired(tuple(values)).ci95 is None


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1, 2, 3, 4, 5], 0.0625),
        ([-1, -2, -3, -4, -5], 0.0625),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2 / 1024),
        ([-1, 2, 3], 0.5),
        ([2, 2], 0.5),
        ([0, 0, 3], 1.0),
        ([0, 0, 0], 1.0),
    ],
)
def test_signed_ranks_worked_out_by_hand(values: list[float], p: float) -> None:
    assert Paired(tuple(values)).wilcoxon_p == pytest.approx(p)


def test_one_pair_says_nothing() -> None:
    assert Paired((0.1,)).wilcoxon_p is None


# Darwin's cross- and self-fertilised maize, in eighths of an inch, as in Fisher (1935), section 17.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


@pytest.mark.parametrize("values", [MAIZE[:12], [3, -3, 3, 1, 1, 0, 0, 2], [5, 5, 5, -5, 0, 1, 1, -2, 2, 2]])
def test_signed_ranks_agree_with_scipy_over_all_signs(values: list[float]) -> None:
    from scipy.stats import PermutationMethod, wilcoxon

    kept = [value for value in values if value]
    exact = wilcoxon(kept, method=PermutationMethod(n_resamples=2 ** len(kept)))
    assert Paired(tuple(values)).wilcoxon_p == pytest.approx(float(exact.pvalue))


def test_equal_steps_are_ties_whatever_their_binary_fractions() -> None:
    assert 0.3 - 0.2 != 0.2 - 0.1
    assert Paired.of([0.2, 0.1], [0.3, 0.2]).steps == (0.1, 0.1)
    with pytest.raises(ValueError, match="zip"):
        Paired.of([0.1], [0.1, 0.2])


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(10, 2, 0.03857), (2, 10, 0.03857), (0, 0, 1), (3, 3, 1), (5, 0, 0.0625)]
)
def test_mcnemar_is_the_binomial_test_of_the_discordant(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p, abs=1e-5)
