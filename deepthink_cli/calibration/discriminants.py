"""Classifiers of hidden states: linear discriminants of several layers joined with the label scores.

With the mean state m_y of the n_y rows of label y, and the covariance S (W, W) of all n rows around these means, the
discriminant of a layer is

    log p(y | h) = w_y . h - w_y . m_y / 2 + log n_y / n + const,    w_y = S_s^-1 m_y,
    S_s = (1 - s) S + s tr(S) / W I

(Fisher's discriminant with a shrunk covariance: Friedman 1989, Regularized discriminant analysis). The head is

    score(y) = a / L sum_l log p(y | h_l) + c log p(y | x) - b_y

with the a, c > 0 and b that make the true labels of held-out rows the likeliest, the minimum of

    -sum_i log softmax(score_i)[gold_i] + (log(a)^2 + log(c)^2 + |b|^2) / 2

(stacking: Wolpert 1992). So the probabilities are those of a model that was fitted to rows which the discriminants had
not seen. s is the value of `SHRINKAGES`, the same for all layers, for which that minimum is least.

Rows without a label may be added. Each counts for every label by its probability p(y) = softmax(score)[y], which the
head of the labelled rows gives it, and then again by the head of all rows (expectation maximisation: Nigam et al. 2000,
Text classification from labeled and unlabeled documents using EM). The head with the least minimum is kept, which may
be the head of the labelled rows. The label of a held-out row has no part in the discriminants that judge the row, and a
part in these probabilities only by a, b, c and s.

W exceeds n, so states are given by their principal components. Labelled rows alone have all of them, and with rows
without labels the `COMPONENTS` largest are used.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deepthink_cli.data.same_input import FOLDS, SEED, split
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.scoring.heads import LinearHead
from deepthink_cli.scoring.softmax import log_softmax, softmax

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from deepthink_cli.scoring.softmax import Floats

    Ints = NDArray[int64]

SHRINKAGES = (0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
MOST = 1_000  # labelled rows: the time grows with their number, and is seconds here
COMPONENTS = 200  # of a layer, with rows without labels
STEPS = 2  # times that rows without labels are added
FLOOR = -1e3  # log p of a label without rows, in nats
FLAT = 1e-3  # the largest slope at which the weights are found
_NONE = 1e-9  # rows: a label that counts fewer has none


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Rows without labels: hidden states (m, L, W), and the labels' log-probabilities (m, C)."""

    states: Floats
    logs: Floats


def discriminants(
    states: Floats, logs: Floats, gold: Sequence[int], groups: Sequence[int], unlabelled: Unlabelled | None = None
) -> LinearHead:
    """The head of labelled rows, and of rows without labels, if any.

    `states` (n, L, W) are hidden states of the rows, `logs` (n, C) their labels' log-probabilities, `gold` (n,) the
    places of their true labels, and `groups` (n,) the numbers of their inputs: the rows of one input are in one fold.
    Of more than `MOST` rows a fixed sample is used. Raises DeepThinkError if no weights are found.
    """
    import numpy as np

    if len(gold) > MOST:
        kept = _sample(gold)
        states, logs = states[kept], logs[kept]
        gold, groups = [gold[row] for row in kept], [groups[row] for row in kept]
    if unlabelled is not None:
        states, logs = np.concatenate([states, unlabelled.states]), np.concatenate([logs, unlabelled.logs])
    states_LNW = np.asarray(states, dtype=np.float64).swapaxes(0, 1)
    logs_NC, places = log_softmax(logs), np.asarray(gold)
    shares_NC = np.zeros(logs_NC.shape)
    shares_NC[range(len(places)), places] = 1
    folds = [list(fold) for fold in split([str(each) for each in gold], groups, min(FOLDS, len(set(groups))), SEED)]
    held_out = [np.isin(np.arange(len(shares_NC)), fold)[:, None] for fold in folds]
    shares = [shares_NC, *(np.where(own_N1, 0, shares_NC) for own_N1 in held_out)]
    layers = [_Layer.of(each, len(places), MOST) for each in states_LNW]
    fits = [_fitted(layers, shares, logs_NC, places, folds)]
    for _ in range(0 if unlabelled is None else STEPS):
        shares = [_joined(fits[-1], each, logs_NC, len(places)) for each in shares]
        if len(fits) == 1:
            layers = [_Layer.of(each, len(each), COMPONENTS) for each in states_LNW]
        fits.append(_fitted(layers, shares, logs_NC, places, folds))
    best = min(fits, key=lambda fit: fit.loss)
    return replace(best.head(), joined=best is not fits[0])


def _sample(gold: Sequence[int]) -> list[int]:
    """`MOST` rows, in their order: two of each label, and others at random."""
    order, of_label = random.Random(SEED).sample(range(len(gold)), len(gold)), Counter[int]()
    ranked: list[tuple[bool, int, int]] = []
    for row in order:
        of_label[gold[row]] += 1
        ranked.append((of_label[gold[row]] > 2, len(ranked), row))
    return sorted(row for _, _, row in sorted(ranked)[:MOST])


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer's states: a mean (W,), components (K, W), and the rows in terms of these (N, K)."""

    centre_W: Floats
    components_KW: Floats
    rows_NK: Floats

    @classmethod
    def of(cls, states_NW: Floats, count: int, most: int) -> _Layer:
        """The layer in at most so many components of its first `count` rows; those of no variance are left out."""
        import numpy as np
        from scipy.linalg import eigh

        centre_W = states_NW[:count].mean(axis=0)
        centred_NW = states_NW - centre_W
        first_nW = centred_NW[:count]
        squares_K, vectors_nK = eigh(first_nW @ first_nW.T, subset_by_index=(max(0, count - most), count - 1))
        used = squares_K > 1e-12 * max(squares_K[-1], _NONE)
        components_KW = (vectors_nK[:, used] / np.sqrt(squares_K[used])).T @ first_nW
        return cls(centre_W, components_KW, centred_NW @ components_KW.T)

    def discriminant(self, shares_NC: Floats, shrinkage: float) -> tuple[Floats, Floats]:
        """w (K, C) in terms of the components, and the constants (C,) of log p(y | h) for centred states.

        A row counts for a label by its share; a label without rows has the constant minus infinity.
        """
        import numpy as np

        counts_C, width = shares_NC.sum(axis=0), self.components_KW.shape[1]
        rows, weights_N1 = counts_C.sum(), shares_NC.sum(axis=1, keepdims=True)
        means_CK = shares_NC.T @ self.rows_NK / np.maximum(counts_C, _NONE)[:, None]
        squares_KK = (weights_N1 * self.rows_NK).T @ self.rows_NK / rows
        covariance_KK = squares_KK - (counts_C[:, None] * means_CK).T @ means_CK / rows
        # Rows of one label each have no variance around its mean, and a layer with equal states has none at all.
        total, spread = np.trace(squares_KK), np.trace(covariance_KK)
        variance = (spread if spread > _NONE * total else total) or width
        shrunk_KK = (1 - shrinkage) * covariance_KK + shrinkage * variance / width * np.eye(len(covariance_KK))
        weights_KC = np.linalg.solve(shrunk_KK, means_CK.T)
        with np.errstate(divide="ignore"):
            priors_C = np.log(np.where(counts_C > _NONE, counts_C, 0) / rows)
        return weights_KC, priors_C - (weights_KC * means_CK.T).sum(axis=0) / 2


def _by_layers(layers: Sequence[_Layer], shares_NC: Floats, shrinkage: float) -> Floats:
    """The mean log p(y | h_l) (N, C) over the layers for each row, by the rows that have shares."""
    import numpy as np

    sum_NC = np.zeros(shares_NC.shape)
    for layer in layers:
        weights_KC, constants_C = layer.discriminant(shares_NC, shrinkage)
        sum_NC += np.maximum(log_softmax(layer.rows_NK @ weights_KC + constants_C), FLOOR)
    return sum_NC / len(layers)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The least loss, the a, c, b (C,) and s for which held-out rows have it, the layers, and the shares (N, C)."""

    loss: float
    by_head: float
    by_scores: float
    bias_C: Floats
    shrinkage: float
    layers: Sequence[_Layer]
    shares_NC: Floats

    def scores(self, by_layers_NC: Floats, logs_NC: Floats) -> Floats:
        """score(y) (N, C) of rows."""
        return self.by_head * by_layers_NC + self.by_scores * logs_NC - self.bias_C

    def head(self) -> LinearHead:
        """The head, whose weights and bias are those of states as they come."""
        import numpy as np

        each, weights_LCW, bias_C = self.by_head / len(self.layers), [], -self.bias_C
        for layer in self.layers:
            weights_KC, constants_C = layer.discriminant(self.shares_NC, self.shrinkage)
            weights_LCW.append(each * weights_KC.T @ layer.components_KW)
            bias_C = bias_C + each * constants_C - weights_LCW[-1] @ layer.centre_W
        return LinearHead(np.stack(weights_LCW, axis=1), bias_C, self.by_scores)


def _fitted(
    layers: Sequence[_Layer], shares: Sequence[Floats], logs_NC: Floats, places: Ints, folds: Sequence[list[int]]
) -> _Fit:
    """The fit with the least loss; `shares` (N, C) are those of all rows, and those without the rows of each fold."""
    import numpy as np

    seen = np.zeros(len(places), dtype=bool)  # rows whose label has other rows outside the fold
    for fold, shares_NC in zip(folds, shares[1:], strict=True):
        seen[fold] = shares_NC.sum(axis=0)[places[fold]] > _NONE
    fits = []
    for shrinkage in SHRINKAGES:
        held_out_NC = np.zeros((len(places), logs_NC.shape[1]))
        for fold, shares_NC in zip(folds, shares[1:], strict=True):
            held_out_NC[fold] = _by_layers(layers, shares_NC, shrinkage)[fold]
        found = _stacked(held_out_NC[seen], logs_NC[: len(places)][seen], places[seen])
        fits.append(_Fit(*found, shrinkage, layers, shares[0]))
    return min(fits, key=lambda fit: fit.loss)


def _joined(fit: _Fit, shares_NC: Floats, logs_NC: Floats, labelled: int) -> Floats:
    """The shares with rows without labels, which follow the `labelled` rows: their probabilities by the fit."""
    by_layers_NC = _by_layers(fit.layers, shares_NC, fit.shrinkage)
    joined_NC = shares_NC.copy()
    joined_NC[labelled:] = softmax(fit.scores(by_layers_NC, logs_NC)[labelled:])
    joined_NC[:, shares_NC.sum(axis=0) <= _NONE] = 0
    return joined_NC


def _stacked(by_layers_NC: Floats, logs_NC: Floats, places: Ints) -> tuple[float, float, float, Floats]:
    """The least loss, and the a, c and b (C,) for which held-out rows have it."""
    import numpy as np
    from scipy.optimize import minimize

    rows, counts = range(len(places)), np.bincount(places, minlength=logs_NC.shape[1])

    def loss(parameters: Floats) -> tuple[float, Floats]:
        (a, c), bias = np.exp(parameters[:2]), parameters[2:]
        logits = log_softmax(a * by_layers_NC + c * logs_NC - bias)
        excess = np.exp(logits)
        excess[rows, places] -= 1
        slopes = [a * (excess * by_layers_NC).sum(), c * (excess * logs_NC).sum(), *-excess.sum(axis=0)]
        value = (parameters @ parameters) / 2 - logits[rows, places].sum()
        return float(value), np.array(slopes) + parameters

    found = minimize(loss, np.zeros(2 + len(counts)), method="BFGS", jac=True, options={"gtol": 1e-6})
    if not np.abs(found.jac).max() < FLAT:
        raise DeepThinkError(f"no weights fit the labels of the {len(places)} rows: {found.nit} steps found none")
    a, c = np.exp(found.x[:2])
    return float(found.fun), float(a), float(c), found.x[2:]
