"""The corrections of this plugin, against their formulas computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.plugins.corrections import estimates
from deepthink_cli.scoring.softmax import log_softmax

# Probabilities of two labels for three inputs; their means are 0.7 and 0.3.
THREE = [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]]


def test_prior_matching_makes_all_labels_equally_likely_on_average() -> None:
    logs = log_softmax(np.log(THREE))
    after = np.exp(log_softmax(logs - CALIBRATIONS["prior"].bias(logs)))
    assert after.mean(axis=0) == pytest.approx([0.5, 0.5])
    # With two labels the bias is one number d: the mean of 1 / (1 + exp(d - z)) over the log-odds z is 1/2.
    odds = [math.log(left / right) for left, right in THREE]
    low, high = min(odds), max(odds)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(1 / (1 + math.exp(middle - z)) for z in odds) > 1.5 else (low, middle)
    assert after[:, 0] == pytest.approx([1 / (1 + math.exp(low - z)) for z in odds])


@pytest.mark.parametrize("likely", [30, 100])
@pytest.mark.parametrize("rows", [50, 100, 150])
def test_prior_matching_finds_the_bias_where_every_row_is_certain(rows: int, likely: float) -> None:
    draw = np.random.default_rng(0)
    odds = np.concatenate([draw.normal(likely, 1, rows), draw.normal(-10, 1, 100)])
    bias = CALIBRATIONS["prior"].bias(log_softmax(np.stack([odds, np.zeros_like(odds)], axis=1)))
    assert expit(odds - (bias[0] - bias[1])).mean() == pytest.approx(0.5, abs=1e-5)


def test_a_prior_that_is_not_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "EVEN", 0)
    with pytest.raises(DeepThinkError, match="no bias makes the labels equally likely over the 3 inputs: "):
        CALIBRATIONS["prior"].bias(log_softmax(np.log(THREE)))


def test_a_constant_on_the_scores_of_a_label_is_removed_exactly() -> None:
    rows, constant = np.random.default_rng(1).normal(size=(5, 3)), np.array([3.0, -1.0, 0.5])

    def after(shift: object) -> object:
        logs = log_softmax(rows + shift)
        return log_softmax(logs - CALIBRATIONS["prior"].bias(logs))

    assert after(constant) == pytest.approx(after(np.zeros(3)), abs=1e-10)
