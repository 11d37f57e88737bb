"""GradMatch: rows whose weighted gradients add up to the mean gradient of the pool."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.gradients import Gradients
from deepthink_cli.selection.methods.greedy import greedy

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats

PENALTY = 1.0  # lambda, as in DeepCore, whose methods the published figures are from


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose by orthogonal matching pursuit for min_w || sum_{j in S} w_j g_j - mean g ||^2 + lambda ||w||^2, w >= 0.

    Killamsetty et al. 2021, algorithm 2, over last-layer gradients g with lambda = 1: each step adds the row whose
    gradient has the largest inner product with the residual, mean g - sum_{j in S} w_j g_j, and solves for all weights
    again. That inner product is the score. Where none is positive no weight would be, and the row with the largest one
    is added all the same, so that there are always `shots` rows.
    """
    return greedy(_Matching(Gradients.of(pool)), len(pool), shots)


class _Matching:
    """`inner` holds <g_s, g_j> (n,) for every chosen row s."""

    def __init__(self, gradients: Gradients) -> None:
        self.gradients = gradients
        self.target = gradients.sums() / len(gradients)  # (n,): <mean g, g_j>
        self.rows: list[int] = []
        self.inner: list[Floats] = []
        self.weights = np.zeros(0)

    def gains(self) -> Floats:
        if not self.rows:
            return self.target
        return np.asarray(self.target - self.weights @ np.stack(self.inner), dtype=np.float64)

    def add(self, row: int) -> None:
        self.rows.append(row)
        self.inner.append(self.gradients.inner(slice(row, row + 1))[0])
        self.weights = nonnegative(np.stack(self.inner)[:, self.rows], self.target[self.rows])


def nonnegative(kernel: Floats, target: Floats) -> Floats:
    """argmin over w >= 0 of w' K w - 2 w' b + lambda w' w, for K (k, k) and b (k,)."""
    from scipy.optimize import nnls

    factor = np.linalg.cholesky(kernel + PENALTY * np.eye(len(target)))
    weights, _ = nnls(factor.T, np.linalg.solve(factor, target))
    return np.asarray(weights, dtype=np.float64)
