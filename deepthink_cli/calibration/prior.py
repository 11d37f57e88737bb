"""The bias without which the labels are predicted equally often: label prior matching."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats

STEPS, TOLERANCE = 10_000, 1e-12  # at most; nats between the last two steps


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
