"""Log-probabilities over candidates, batch calibration, and labels, from arrays of scores."""

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
