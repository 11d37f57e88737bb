"""What a model says of a pool's rows, as arrays, and the greedy choice of rows by an objective."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from deepthink_cli.selection.registry import Floats, States

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
    """Choose the rows with the largest scores (n,); among equal scores, the first rows."""
    return Choice(np.argsort(-scores, kind="stable")[:shots].tolist(), scores)


TIE = 1e-9  # gains are equal if they differ by less than this share of the largest: two rows often add the same


# What each row (n,) would add to an objective, before each row that is added, which is sent; not read for added rows.
Gains = Generator["Floats", int]


def greedy(objective: Gains, count: int, shots: int) -> Choice:
    """Add the row with the largest gain, the first among equals, until `shots` of `count` rows are chosen.

    A chosen row's score is its gain when it was chosen; another row's score is its gain after the last choice.
    """
    chosen: list[int] = []
    scores, free = np.zeros(count), np.ones(count, dtype=np.bool_)
    gains = next(objective)
    for _ in range(shots):
        row = best(gains, free)
        scores[row], free[row] = gains[row], False
        chosen.append(row)
        gains = objective.send(row)
    scores[free] = gains[free]
    return Choice(chosen, scores)


def best(gains: Floats, free: NDArray[bool_]) -> int:
    """The free row with the largest gain; among gains equal up to rounding, the first row."""
    largest = gains[free].max()
    return int(np.argmax(free & (gains >= largest - TIE * abs(largest))))
