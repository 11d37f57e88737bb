"""Estimates of log b from normalised log-probabilities: a mean, and fitted labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.errors import DeepThinkError

if TYPE_CHECKING:
    from deepthink_cli.scoring.softmax import Floats

FLAT = 1e-3  # the largest slope at which log_fitted ends


def log_mean(logs: Floats) -> Floats:
    """log b(y), b(y) = 1/m sum_i p(y | x_i), for log-probabilities (m, C).

    Contextual calibration (Zhao et al. 2021, section 5: W = diag(p_cf)^-1, b = 0) with content-free inputs x_i,
    domain-context calibration (Fei et al. 2023, equation 4) with random words of the domain, and batch calibration
    (Zhou et al. 2023, equations 3 and 4) with the inputs themselves. Of a single input, the domain premise, it is the
    domain-conditional PMI (Holtzman et al. 2021, section 3).
    """
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)), dtype=np.float64)


def log_fitted(logs: Floats, gold: Sequence[int], slope: bool = False) -> Floats:
    """log b(y), of mean 0, that makes the true labels likeliest; `gold` (m,) are their places.

    The minimum of -sum_i log softmax(a log p(y | x_i) - log b(y))[gold_i] + sum_y (log b(y))^2 / 2 + (log a)^2 / 2 for
    a = 1. This is vector scaling (Guo et al. 2017, section 4.2) with the bias alone: logistic regression with the usual
    penalty, so that few rows move the bias little. With many rows, the mean probability of every label is its share of
    the true labels. With `slope`, a > 0 is fitted too, and log b(y) / a is returned, which gives the labels of that
    regression. Scores that are too certain then move the bias less.
    """
    from scipy.optimize import minimize

    counts = np.bincount(np.asarray(gold), minlength=logs.shape[1])
    true = logs[range(len(gold)), gold].sum()

    def loss(parameters: Floats) -> tuple[float, Floats]:
        log_a, bias = parameters[0] * slope, parameters[1:]
        shifted = np.exp(log_a) * logs - bias
        norms = np.logaddexp.reduce(shifted, axis=1, keepdims=True)
        shares = np.exp(shifted - norms)
        value = norms.sum() + counts @ bias - np.exp(log_a) * true + (bias @ bias + log_a**2) / 2
        by_log_a = np.exp(log_a) * ((shares * logs).sum() - true) + log_a
        return float(value), np.array([by_log_a * slope, *(counts - shares.sum(axis=0) + bias)])

    start = np.zeros(1 + logs.shape[1])
    found = minimize(loss, start, method="BFGS", jac=True, options={"gtol": 1e-9})
    if not np.abs(found.jac).max() < FLAT:  # the penalty alone curves by 1, so that this bounds the distance in nats
        raise DeepThinkError(f"no bias fits the labels of the {len(logs)} rows: {found.nit} steps found none")
    log_b = found.x[1:] / np.exp(found.x[0] * slope)
    return np.asarray(log_b - log_b.mean(), dtype=np.float64)


def log_fitted_with_slope(logs: Floats, gold: Sequence[int]) -> Floats:
    """`log_fitted` with a slope."""
    return log_fitted(logs, gold, slope=True)
