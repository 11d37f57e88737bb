"""What a model says of a pool's rows, as arrays, and distances between hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats, States

STEP = 64  # rows that are computed together, so that no intermediate result is large
TINY = float(np.finfo(np.float64).tiny)  # stands for a probability of 0 in a logarithm


def hidden_states(pool: Pool) -> States:
    """The hidden states (n, W) of a pool for a method that reads them."""
    assert pool.hidden is not None, "the method reads hidden states"
    return pool.hidden


def label_probabilities(pool: Pool) -> Floats:
    """The probabilities (n, C) of a pool for a method that reads them."""
    assert pool.probabilities is not None, "the method reads probabilities"
    return np.asarray(pool.probabilities, dtype=np.float64)


def blocks(count: int) -> Iterator[slice]:
    """`count` rows as slices of at most STEP rows."""
    return (slice(start, min(start + STEP, count)) for start in range(0, count, STEP))


def distances(hidden: States, point: Floats | States) -> Floats:
    """The Euclidean distance (n,) of every row from a point (W,), in float64."""
    point = np.asarray(point, dtype=np.float64)
    return np.concatenate([np.linalg.norm(hidden[rows] - point, axis=1) for rows in blocks(len(hidden))])


def largest(scores: Floats, shots: int) -> Choice:
    """Choose the rows with the largest scores (n,), the first ones of those with equal scores."""
    return Choice(np.argsort(-scores, kind="stable")[:shots].tolist(), scores)
