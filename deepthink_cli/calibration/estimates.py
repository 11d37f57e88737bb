"""Estimates of log b from normalised log-probabilities: a mean, a premise alone, matched and fitted labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.scoring.softmax import softmax

if TYPE_CHECKING:
    from deepthink_cli.scoring.softmax import Floats

STEPS = 1_000  # the most steps of log_matched
TOLERANCE, CLOSE = 1e-9, 1e-6  # log_matched ends at mean shares so near 1/C, after a step of so few nats
RIDGE = 1e-12  # added to a curvature whose diagonal is 1
FLAT = 1e-3  # the largest slope at which log_fitted ends


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
    """log b(y), of mean 0, for which the mean of softmax(log p(y | x) - log b(y)) over the inputs is uniform.

    This is the fixed point of repeated batch calibration: the mean probability of every label is 1/C, whatever constant
    is added to a label's scores. Saerens et al. (2002) adjust posteriors to a known prior in the same way. It is the
    only minimum of the convex

        1/m sum_i log sum_y exp(log p(y | x_i) - log b(y)) + 1/C sum_y log b(y),

    found by Newton steps. A step of d nats is shortened to log(1 + d), so that it descends from any start (Sun and
    Tran-Dinh 2019, generalized self-concordant functions). The start is the mean of the log-probabilities: a constant
    on a label's scores moves it as it moves the minimum. The log-probabilities are first divided by a heat that makes
    them uncertain, and that halves until it is 1. Raises DeepThinkError if no bias is found.
    """
    bias = logs.mean(axis=0)
    heat = 2.0 ** np.ceil(np.log2(max(1, np.ptp(logs - bias))))
    for _ in range(STEPS):
        excess, curvature = _of_matched((logs - bias) / heat)
        step = _newton(curvature, excess)
        size = np.ptp(step)
        bias = bias + heat * step * (np.log1p(size) / size if size else 1)
        if heat == 1 and size < CLOSE and np.abs(excess).max() < TOLERANCE * len(logs):
            return np.asarray(bias - bias.mean(), dtype=np.float64)
        if heat > 1 and size < 1:
            heat /= 2
    raise DeepThinkError(
        f"no bias makes the labels equally likely over the {len(logs)} inputs: {STEPS} steps found none"
    )


def _of_matched(logits: Floats) -> tuple[Floats, Floats]:
    """sum_i p_i - m/C (C,) and sum_i diag(p_i) - p_i p_i' (C, C), for the shares p (m, C) of inputs.

    For certain inputs, the first sum consists of their smallest shares, which a sum of shares near 1 rounds away. So
    the labels with the largest share are counted, and only the shares that the other labels take are summed.
    """
    shares = softmax(logits)
    inputs, labels = shares.shape
    between = shares.T @ shares
    np.fill_diagonal(between, 0)
    largest = shares.argmax(axis=1)
    shares[range(inputs), largest] = 0
    taken = np.bincount(largest, weights=shares.sum(axis=1), minlength=labels)
    excess = np.bincount(largest, minlength=labels) - inputs / labels + (shares.sum(axis=0) - taken)
    return excess, np.diag(between.sum(axis=1)) - between


def _newton(curvature: Floats, excess: Floats) -> Floats:
    """The x of `curvature` x = `excess`, solved in units in which the diagonal of `curvature` is 1.

    The columns of `curvature` sum to 0.
    """
    unit = 1 / np.sqrt(np.maximum(curvature.diagonal(), np.finfo(np.float64).tiny))
    ridge = RIDGE * np.eye(len(unit))
    return np.asarray(np.linalg.solve(curvature * np.outer(unit, unit) + ridge, excess * unit) * unit)


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
