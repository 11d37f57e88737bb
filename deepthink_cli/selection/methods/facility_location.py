"""Facility location: rows such that every gradient of the pool is similar to one of theirs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.features import STEP, blocks
from deepthink_cli.selection.methods.gradients import Gradients
from deepthink_cli.selection.methods.greedy import greedy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepthink_cli.selection.base import Floats

EXACT = 5_000  # rows whose similarities are kept in float64 (200 MB)
KEPT = 15_000  # rows whose similarities are kept in float32 (900 MB)


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose greedily by f(S) = sum_i max_{j in S} s_ij with s_ij = 1/2 + 1/2 cos(g_i, g_j) of last-layer gradients."""
    gradients = Gradients.of(pool).unit()
    return greedy(FacilityLocation(lambda rows: 0.5 + 0.5 * gradients.inner(rows), len(pool)), len(pool), shots)


class FacilityLocation:
    """f(S) = sum_i max(floor, max_{j in S} s_ij) - n floor, by default with floor = 0.

    `similarity` gives s_ij of b rows with all rows (b, n). With more than KEPT rows the similarities do not fit in
    memory, and are computed again for every row that is chosen. If `floor` is None, it is the smallest similarity.
    """

    def __init__(self, similarity: Callable[[slice], Floats], count: int, floor: float | None = 0.0) -> None:
        self.similarity, self.count = similarity, count
        dtype = np.float64 if count <= EXACT else np.float32
        self.kept: list[NDArray[Any]] | None = None
        if count <= KEPT:
            self.kept = [similarity(rows).astype(dtype) for rows in blocks(count)]
        if floor is None:
            floor = min(float(block.min()) for block in self._similarities())
        self.nearest = np.full(count, floor)  # max(floor, max_{j in S} s_ij)

    def gains(self) -> Floats:
        """The increase (n,) of f by each row: sum_i max(0, s_ij - max_{j in S} s_ij)."""
        gains = []
        for block in self._similarities():
            more = block - self.nearest
            gains.append(np.maximum(more, 0, out=more).sum(axis=1))
        return np.concatenate(gains)

    def add(self, row: int) -> None:
        """Add a row to S."""
        column = self.similarity(slice(row, row + 1))[0] if self.kept is None else self.kept[row // STEP][row % STEP]
        self.nearest = np.maximum(self.nearest, column)

    def _similarities(self) -> Iterator[NDArray[Any]]:
        if self.kept is not None:
            return iter(self.kept)
        return (self.similarity(rows) for rows in blocks(self.count))
