"""Metrics of probabilities agree with plain numpy and with numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from deepthink_cli.evaluation.metrics import Answers, mean_ci95
from deepthink_cli.scoring.softmax import log_share


def answers(log_probabilities: NDArray[np.float64], shares: NDArray[np.float64], right: NDArray[np.bool_]) -> Answers:
    made = Answers()
    made.log_probabilities.extend(log_probabilities.tolist())
    made.probabilities.extend(shares.tolist())
    made.gold, made.given = ["a"] * len(right), ["a" if each else "b" for each in right]
    return made


def test_the_share_of_a_candidate_is_its_probability_among_all() -> None:
    scores = [-3.0, -1.0, -2.0]
    exponentials = np.exp(scores)
    for score, share in zip(scores, exponentials / exponentials.sum(), strict=True):
        assert log_share(score, scores) == pytest.approx(math.log(share))


def test_a_share_of_very_small_probabilities_does_not_underflow() -> None:
    assert log_share(-2000.0, [-2000.0, -2000.0]) == pytest.approx(-math.log(2))


def test_metrics_of_many_rows_are_those_of_numpy() -> None:
    random = np.random.default_rng(0)
    shares, right = random.uniform(0.2, 1, 500), random.random(500) < 0.6
    log_probabilities = np.log(random.uniform(0.01, 1, 500))
    result = answers(log_probabilities, shares, right).quality()
    bins = np.digitize(shares, np.arange(1, 10) / 10, right=True)
    expected = sum(
        (bins == number).mean() * abs(right[bins == number].mean() - shares[bins == number].mean())
        for number in np.unique(bins)
    )
    assert result.ece == pytest.approx(expected)
    assert result.log_probability == pytest.approx(log_probabilities.mean())
    interval = stats.t.interval(0.95, 499, log_probabilities.mean(), stats.sem(log_probabilities))
    assert result.log_probability_ci95 == pytest.approx(interval)


def test_certain_and_right_has_no_calibration_error() -> None:
    assert answers(np.zeros(3), np.ones(3), np.ones(3, dtype=bool)).quality().ece == 0


def test_one_number_has_no_interval() -> None:
    assert mean_ci95([0.25]) is None
