"""K-Center Greedy: rows such that every row of the pool is near to one of them."""

from __future__ import annotations

import random

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.features import distances, hidden_states
from deepthink_cli.selection.methods.greedy import best


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
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
