"""Methods that compare the gradients of the loss with respect to the model's last layer, which have a closed form."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.plugins.selection.zero_shot import Gains, blocks, greedy, hidden_states, label_probabilities
from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import Floats


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradients g_i = [d_i ; d_i (x) h_i] of every row's loss with respect to bias and weights of the last layer.

    `residuals` (n, C) are d_i = p_i - onehot(y_i), `hidden` (n, W) the layer's inputs h_i, both in float64. The vectors
    of C (1 + W) numbers are never formed: <g_i, g_j> = (d_i . d_j) (1 + h_i . h_j).
    """

    residuals: Floats
    hidden: Floats

    @classmethod
    def of(cls, pool: Pool) -> Gradients:
        """The gradients of a pool's cross-entropy with the true labels."""
        residuals = label_probabilities(pool).copy()
        residuals[np.arange(len(pool)), pool.gold] -= 1
        return cls(residuals, hidden_states(pool).astype(np.float64))

    def __len__(self) -> int:
        return len(self.hidden)

    def inner(self, rows: slice) -> Floats:
        """The inner products <g_i, g_j> of b rows i with all rows j (b, n)."""
        products = self.hidden[rows] @ self.hidden.T
        products += 1
        products *= self.residuals[rows] @ self.residuals.T
        return products

    def squares(self) -> Floats:
        """||g_i||^2 (n,)."""
        hidden = np.einsum("iw,iw->i", self.hidden, self.hidden)
        return np.asarray((self.residuals**2).sum(axis=1) * (1 + hidden), dtype=np.float64)

    def sums(self) -> Floats:
        """sum_j <g_i, g_j> (n,), without the inner products of pairs."""
        weights = self.residuals.T @ self.hidden  # (C, W), and the sum of the residuals is the part of the bias
        each = self.hidden @ weights.T + self.residuals.sum(axis=0)  # (n, C)
        return np.asarray((self.residuals * each).sum(axis=1), dtype=np.float64)

    def unit(self) -> Gradients:
        """The gradients g_i / ||g_i||, whose inner products are cosines; a gradient of 0 remains 0."""
        norms = np.sqrt(self.squares())
        scales = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
        return Gradients(self.residuals * scales[:, None], self.hidden)


def facility_location(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose greedily by f(S) = sum_i max_{j in S} s_ij with s_ij = 1/2 + 1/2 cos(g_i, g_j) of last-layer gradients."""
    gradients = Gradients.of(pool).unit()
    return greedy(covering(lambda rows: 0.5 + 0.5 * gradients.inner(rows), len(pool), 0.0), len(pool), shots)


def covering(similarity: Callable[[slice], Floats], count: int, floor: float) -> Gains:
    """The gains sum_i max(0, s_ij - max(floor, max_{j in S} s_ij)) of f(S) = sum_i max(floor, max_{j in S} s_ij).

    `similarity` gives s_ij of b rows with all rows (b, n); similarities are computed again for every row that is
    chosen, as those of a large pool do not fit in memory.
    """
    nearest = np.full(count, floor)
    while True:
        row = yield np.concatenate([np.maximum(similarity(rows) - nearest, 0).sum(axis=1) for rows in blocks(count)])
        nearest = np.maximum(nearest, similarity(slice(row, row + 1))[0])


def craig(pool: Pool, shots: int, draw: random.Random) -> Choice:
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

    farthest = min(float(nearness(rows).min()) for rows in blocks(len(pool)))
    return greedy(covering(nearness, len(pool), farthest), len(pool), shots)


def graph_cut(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose greedily by f(S) = sum_{i in V, j in S} s_ij - sum_{i, j in S} s_ij.

    V is the pool, s_ij = 1/2 + 1/2 cos(g_i, g_j) of last-layer gradients g. The first sum is weighted by lambda = 1.
    """
    unit = Gradients.of(pool).unit()

    def objective() -> Gains:
        alone = 0.5 * (len(unit) + unit.sums()) - 0.5 * (1 + unit.squares())  # sum_{i in V} s_ij - s_jj
        inside = np.zeros(len(unit))  # sum_{i in S} s_ij
        while True:
            row = yield alone - 2 * inside
            inside += 0.5 + 0.5 * unit.inner(slice(row, row + 1))[0]

    return greedy(objective(), len(pool), shots)


PENALTY = 1.0  # lambda, as in DeepCore, whose methods the published figures are from


def gradmatch(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose by orthogonal matching pursuit for min_w || sum_{j in S} w_j g_j - mean g ||^2 + lambda ||w||^2, w >= 0.

    Killamsetty et al. 2021, algorithm 2, over last-layer gradients g with lambda = 1: each step adds the row whose
    gradient has the largest inner product with the residual, mean g - sum_{j in S} w_j g_j, and solves for all weights
    again. The inner product is the score. If no inner product is positive, no further weight is positive either; the
    row with the largest one is still added, so that there are always `shots` rows.
    """
    gradients = Gradients.of(pool)

    def objective() -> Gains:
        gains = target = gradients.sums() / len(gradients)  # (n,): <mean g, g_j>
        rows: list[int] = []
        inner: list[Floats] = []  # <g_s, g_j> (n,) of every chosen row s
        while True:
            rows.append((yield gains))
            inner.append(gradients.inner(slice(rows[-1], rows[-1] + 1))[0])
            products = np.stack(inner)
            gains = target - nonnegative(products[:, rows], target[rows]) @ products

    return greedy(objective(), len(pool), shots)


def nonnegative(kernel: Floats, target: Floats) -> Floats:
    """argmin over w >= 0 of w' K w - 2 w' b + lambda w' w, for K (k, k) and b (k,)."""
    from scipy.optimize import nnls

    factor = np.linalg.cholesky(kernel + PENALTY * np.eye(len(target)))
    weights, _ = nnls(factor.T, np.linalg.solve(factor, target))
    return np.asarray(weights, dtype=np.float64)
