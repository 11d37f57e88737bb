"""Herding: rows whose mean follows the mean of the pool."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.features import distances, hidden_states
from deepthink_cli.selection.methods.greedy import greedy

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats, States


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
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
