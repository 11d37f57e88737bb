"""Methods that compare hidden states: herding and K-Center Greedy."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.plugins.selection.features import best, distances, greedy, hidden_states
from deepthink_cli.selection.base import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats, States


def herding(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose at step t the row with the smallest || t mu - sum_{s in S} h_s - h_x ||; the score is minus that.

    mu is the mean hidden state of the pool, S the rows chosen before (Welling 2009). No row is chosen twice.
    """
    return greedy(_Herding(hidden_states(pool)), len(pool), shots)


class _Herding:
    """`target` (W,) is t mu - sum_{s in S} h_s."""

    def __init__(self, hidden: States) -> None:
        self.hidden = hidden
        self.mean: Floats = hidden.mean(axis=0, dtype=np.float64)
        self.target = self.mean

    def gains(self) -> Floats:
        return -distances(self.hidden, self.target)

    def add(self, row: int) -> None:
        self.target = self.target + self.mean - self.hidden[row]


def k_center(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw a first row, then choose the row that is farthest from those chosen, argmax_x min_{s in S} ||h_x - h_s||.

    Sener and Savarese 2018, algorithm 1. The score of a row is that distance, of a chosen row when it was chosen; the
    drawn row has the distance of the row that is farthest from it.
    """
    hidden = hidden_states(pool)
    chosen = [draw.randrange(len(pool))]
    nearest = distances(hidden, hidden[chosen[0]])
    scores, free = nearest.copy(), np.ones(len(pool), dtype=np.bool_)
    scores[chosen[0]], free[chosen[0]] = nearest.max(), False
    for _ in range(shots - 1):
        row = best(nearest, free)
        scores[row], free[row] = nearest[row], False
        chosen.append(row)
        nearest = np.minimum(nearest, distances(hidden, hidden[row]))
    scores[free] = nearest[free]
    return Choice(chosen, scores)
