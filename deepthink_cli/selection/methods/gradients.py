"""Gradients of the loss with respect to the model's last layer, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Pool
from deepthink_cli.selection.methods.features import hidden_states, label_probabilities

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats


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
