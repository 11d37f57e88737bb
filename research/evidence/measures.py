"""What is measured on the scores of one row: calibration, label shares, distances, margin.

Knows arrays of log-probabilities, not runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def normalised(scores: Floats) -> Floats:
    """Log-probabilities over the candidates: scores [n, C] minus the log-sum-exp of each row."""
    highest = scores.max(axis=1, keepdims=True)
    result: Floats = scores - highest - np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))
    return result


def batch_calibrated(logs: Floats) -> Floats:
    """Batch calibration (Zhou et al. 2023): normalised log-probabilities [n, C] minus the log of each label's mean
    probability over the n inputs. Uses no label."""
    highest = logs.max(axis=0, keepdims=True)
    result: Floats = logs - highest - np.log(np.exp(logs - highest).mean(axis=0, keepdims=True))
    return result


def predicted(logs: Floats) -> Ints:
    """The best candidate of each input [n]; the first one of a tie."""
    return np.asarray(logs.argmax(axis=1), dtype=np.int64)


def shares(labels: Ints, number: int) -> Floats:
    """The share of each of `number` labels among labels [n]."""
    return np.bincount(labels, minlength=number) / len(labels)


def total_variation(first: Floats, second: Floats) -> float:
    """Half the sum of absolute differences of two distributions: 0 if equal, 1 if disjoint."""
    return float(np.abs(first - second).sum() / 2)


def from_uniform(distribution: Floats) -> float:
    """Total variation between a distribution and the uniform one."""
    return total_variation(distribution, np.full(len(distribution), 1 / len(distribution)))


def mean_margin(logs: Floats) -> float:
    """The mean difference of the best and the second-best log-probability, in nats."""
    ordered = np.sort(logs, axis=1)
    return float((ordered[:, -1] - ordered[:, -2]).mean())


def mean_true(logs: Floats, gold: Ints) -> float:
    """The mean log-probability of the true label, in nats."""
    return float(logs[np.arange(len(gold)), gold].mean())
