"""Estimates of log b from normalised log-probabilities: a mean, that of a premise alone, label prior matching."""

from __future__ import annotations

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
    """log b(y) such that the mean over the inputs of softmax(log p(y | x) - log b(y)) is the uniform prior.

    The fixed point of batch calibration, which is repeated until the mean probability of every label is 1/C: it does
    not depend on a constant that is added to a label's scores. Saerens et al. (2002) adjust posteriors to a known prior
    in the same way.
    """
    count, labels = logs.shape
    bias = np.zeros(labels)
    for _ in range(STEPS):
        mean = np.logaddexp.reduce(log_softmax(logs - bias), axis=0) - np.log(count)
        step = mean + np.log(labels)
        bias += step
        if np.abs(step).max() < TOLERANCE:
            break
    return np.asarray(bias - bias.mean(), dtype=np.float64)
