"""CRAIG: rows whose gradients are near to those of the whole pool."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.facility_location import FacilityLocation
from deepthink_cli.selection.methods.gradients import Gradients
from deepthink_cli.selection.methods.greedy import greedy

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose greedily by f(S) = sum_i max_{j in S} (max d - ||g_i - g_j||) over last-layer gradients g.

    max d is the largest distance of two gradients. The weights of Mirzasoleiman et al. 2020 (how many rows are nearest
    to each chosen one) have no meaning for demonstrations.
    """
    gradients = Gradients.of(pool)
    squares = gradients.squares()

    def nearness(rows: slice) -> Floats:
        """-||g_i - g_j|| of b rows with all rows (b, n)."""
        distances = squares[rows, None] + squares - 2 * gradients.inner(rows)
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = 0
        return -np.sqrt(np.maximum(distances, 0))

    return greedy(FacilityLocation(nearness, len(pool), floor=None), len(pool), shots)
