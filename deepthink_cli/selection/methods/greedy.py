"""Greedy choice: the row that adds most, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from deepthink_cli.selection.base import Choice

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from deepthink_cli.selection.base import Floats

TIE = 1e-9  # gains are equal if they differ by less than this share of the largest: two rows often add the same


class Objective(Protocol):
    """What is maximised, with the rows that were added so far."""

    def gains(self) -> Floats:
        """What each row (n,) would add to the objective; not read for rows that were added."""
        ...

    def add(self, row: int) -> None:
        """Add a row."""
        ...


def greedy(objective: Objective, count: int, shots: int) -> Choice:
    """Add the row with the largest gain, the first of equal ones, until `shots` of `count` rows are chosen.

    The score of a chosen row is its gain when it was chosen, that of another row its gain after the last choice.
    """
    chosen: list[int] = []
    scores, free = np.zeros(count), np.ones(count, dtype=np.bool_)
    for _ in range(shots):
        gains = objective.gains()
        row = best(gains, free)
        scores[row], free[row] = gains[row], False
        chosen.append(row)
        objective.add(row)
    if free.any():
        scores[free] = objective.gains()[free]
    return Choice(chosen, scores)


def best(gains: Floats, free: NDArray[bool_]) -> int:
    """The free row with the largest gain, the first of those that are equal up to rounding."""
    largest = gains[free].max()
    return int(np.argmax(free & (gains >= largest - TIE * abs(largest))))
