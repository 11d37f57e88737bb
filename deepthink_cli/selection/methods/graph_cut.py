"""Graph cut: rows whose gradients are similar to those of the pool and not to each other."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.gradients import Gradients
from deepthink_cli.selection.methods.greedy import greedy

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose greedily by f(S) = sum_{i in V, j in S} s_ij - sum_{i, j in S} s_ij.

    V is the pool, s_ij = 1/2 + 1/2 cos(g_i, g_j) of last-layer gradients g. The first sum is weighted by lambda = 1.
    """
    return greedy(_GraphCut(Gradients.of(pool).unit()), len(pool), shots)


class _GraphCut:
    """`alone` (n,) is sum_{i in V} s_ij - s_jj of every row j, `inside` (n,) is sum_{i in S} s_ij."""

    def __init__(self, unit: Gradients) -> None:
        self.unit = unit
        self.alone = 0.5 * (len(unit) + unit.sums()) - 0.5 * (1 + unit.squares())
        self.inside = np.zeros(len(unit))

    def gains(self) -> Floats:
        return self.alone - 2 * self.inside

    def add(self, row: int) -> None:
        self.inside += 0.5 + 0.5 * self.unit.inner(slice(row, row + 1))[0]
