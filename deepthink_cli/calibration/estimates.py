"""Estimates of log b from normalised log-probabilities: a mean, a premise alone, matched and fitted labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats

STEPS, TOLERANCE = 10_000, 1e-12  # of log_matched: at most so many; nats between the last two


def log_mean(logs: Floats) -> Floats:
    """log b(y), b(y) = 1/m sum_i p(y | x_i), for log-probabilities (m, C).

    Contextual calibration (Zhao et al. 2021, section 5: W = diag(p_cf)^-1, b = 0) with content-free inputs x_i,
    domain-context calibration (Fei et al. 2023, equation 4) with random words of the domain, and batch calibration
    (Zhou et al. 2023, equations 3 and 4) with the inputs themselves.
    """
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)), dtype=np.float64)


def log_premise(logs: Floats) -> Floats:
    """log b(y) = log p(y | domain premise), the only row of `logs` (Holtzman et al. 2021, section 3)."""
    (premise,) = logs
    return np.asarray(premise, dtype=np.float64)


def log_matched(logs: Floats) -> Floats:
    """log b(y), of mean 0, such that the mean over the inputs of softmax(log p(y | x) - log b(y)) is the uniform prior.

    The fixed point of batch calibration, which is repeated until the mean probability of every label is 1/C: it does
    not depend on a constant that is added to a label's scores. Saerens et al. (2002) adjust posteriors to a known prior
    in the same way.
    """
    labels = logs.shape[1]
    bias = np.zeros(labels)
    for _ in range(STEPS):
        mean = np.logaddexp.reduce(log_softmax(logs - bias), axis=0) - np.log(len(logs))
        step = mean + np.log(labels)
        bias += step
        if np.abs(step).max() < TOLERANCE:
            break
    return np.asarray(bias - bias.mean(), dtype=np.float64)


def log_fitted(logs: Floats, gold: Sequence[int], slope: bool = False) -> Floats:
    """log b(y), of mean 0, with which the true labels, whose places are `gold` (m,), are the likeliest.

    The minimum of -sum_i log softmax(a log p(y | x_i) - log b(y))[gold_i] + sum_y (log b(y))^2 / 2 + (log a)^2 / 2 for
    a = 1: vector scaling of Guo et al. (2017, section 4.2) with the bias alone, by logistic regression with the usual
    penalty, so that few rows move the bias little. Where there are many, the mean probability of every label is its
    share of the true labels. With `slope`, a > 0 is fitted too, and log b(y) / a is returned, which gives the labels of
    that regression: scores that are too certain move the bias less.
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
    log_b = found.x[1:] / np.exp(found.x[0] * slope)
    return np.asarray(log_b - log_b.mean(), dtype=np.float64)


def log_fitted_with_slope(logs: Floats, gold: Sequence[int]) -> Floats:
    """`log_fitted` with a slope."""
    return log_fitted(logs, gold, slope=True)
