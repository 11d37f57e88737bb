"""Estimates of log b from normalised log-probabilities: a mean, a premise alone, matched and fitted labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.scoring.softmax import softmax

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats

STEPS = 1_000  # of log_matched, at most; it ends where
TOLERANCE, CLOSE = 1e-9, 1e-6  # mean shares are so near 1/C, and the last step was of so few nats
RIDGE = 1e-12  # of a curvature whose diagonal is 1
FLAT = 1e-3  # of log_fitted: the largest slope where it ends


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
    in the same way. It is the only minimum of the convex

        1/m sum_i log sum_y exp(log p(y | x_i) - log b(y)) + 1/C sum_y log b(y),

    found by Newton steps of at most log(1 + d) nats, for a step of d, which descend from wherever they start (Sun and
    Tran-Dinh 2019, generalized self-concordant functions). They start from the mean of the log-probabilities, which a
    constant on a label's scores moves as it moves the minimum, and with the log-probabilities divided by a heat that
    makes them uncertain, which then halves until it is 1. Raises DeepThinkError if none is found.
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
    """Of the shares p (m, C) of inputs: sum_i p_i - m/C (C,), and sum_i diag(p_i) - p_i p_i' (C, C).

    Where inputs are certain, the first is what is left of their smallest shares, which is lost if those near 1 are
    summed: the labels with the largest share are counted, and only what the others take from them is summed.
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
    """The x of `curvature` x = `excess`, whose columns sum to 0, solved in units in which its diagonal is 1."""
    unit = 1 / np.sqrt(np.maximum(curvature.diagonal(), np.finfo(np.float64).tiny))
    ridge = RIDGE * np.eye(len(unit))
    return np.asarray(np.linalg.solve(curvature * np.outer(unit, unit) + ridge, excess * unit) * unit)


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
    if not np.abs(found.jac).max() < FLAT:  # the penalty alone curves by 1, so that this bounds the distance in nats
        raise DeepThinkError(f"no bias fits the labels of the {len(logs)} rows: {found.nit} steps found none")
    log_b = found.x[1:] / np.exp(found.x[0] * slope)
    return np.asarray(log_b - log_b.mean(), dtype=np.float64)


def log_fitted_with_slope(logs: Floats, gold: Sequence[int]) -> Floats:
    """`log_fitted` with a slope."""
    return log_fitted(logs, gold, slope=True)
