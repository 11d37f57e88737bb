"""The softmax over a query's candidates: the shares of probability among them, and their logarithms.

One query's scores are Python's numbers, many queries' are arrays. Both are computed in float64 after the largest score
is subtracted, so that no exponential overflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # numpy is loaded where arrays are used, and not by a command's help
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]


def shares(scores: Sequence[float]) -> list[float]:
    """The share of each candidate of one query, from their scores in nats."""
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def logistic(score: float) -> float:
    """1 / (1 + exp(-score)), the share of a score in nats against 0; also of infinite scores."""
    return (1 + math.tanh(score / 2)) / 2


def log_share(score: float, scores: Iterable[float]) -> float:
    """The log of one candidate's share, from its score and those of all: score - log sum exp(scores), in nats."""
    values = list(scores)
    best = max(values)
    return score - best - math.log(sum(math.exp(value - best) for value in values))


def softmax(scores: Any) -> Floats:
    """The shares (..., C) of candidates, from their scores in nats."""
    import numpy as np

    logits: Floats = np.asarray(scores, dtype=np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


def log_softmax(scores: Any) -> Floats:
    """The logs of the shares (..., C) of candidates, from their scores in nats."""
    import numpy as np

    logs: Floats = np.asarray(scores, dtype=np.float64)
    return logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)
