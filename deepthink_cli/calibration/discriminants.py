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

W exceeds n, so everything is computed from the inner products (n, n) of the rows' states.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepthink_cli.data.same_input import FOLDS, SEED, split
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.scoring.heads import LinearHead
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from numpy import bool_, int64
    from numpy.typing import NDArray

    from deepthink_cli.scoring.softmax import Floats

    Ints = NDArray[int64]

SHRINKAGES = (0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
MOST = 1_000  # rows: the time grows with the third power, and is seconds here
FLOOR = -1e3  # log p of a label without rows, in nats
FLAT = 1e-3  # the largest slope at which the weights are found


def discriminants(states: Floats, logs: Floats, gold: Sequence[int], groups: Sequence[int]) -> LinearHead:
    """The head of labelled rows.

    `states` (n, L, W) are hidden states of the rows, `logs` (n, C) their labels' log-probabilities, `gold` (n,) the
    places of their true labels, and `groups` (n,) the numbers of their inputs: the rows of one input are in one fold.
    Of more than `MOST` rows a fixed sample is used. Raises DeepThinkError if no weights are found.
    """
    import numpy as np

    if len(gold) > MOST:
        # In order: two of each label, and others at random.
        order, of_label = random.Random(SEED).sample(range(len(gold)), len(gold)), Counter[int]()
        ranked: list[tuple[bool, int, int]] = []
        for row in order:
            of_label[gold[row]] += 1
            ranked.append((of_label[gold[row]] > 2, len(ranked), row))
        kept = sorted(row for _, _, row in sorted(ranked)[:MOST])
        gold, groups = [gold[row] for row in kept], [groups[row] for row in kept]
        states, logs = states[kept], logs[kept]
    states_LNW, places = np.asarray(states, dtype=np.float64).swapaxes(0, 1), np.asarray(gold)
    width, centre_LW = states_LNW.shape[2], states_LNW.mean(axis=1)
    centred_LNW = states_LNW - centre_LW[:, None]
    grams_LNN = centred_LNW @ centred_LNW.swapaxes(1, 2)
    logs_NC = log_softmax(logs)
    folds = split([str(place) for place in gold], groups, min(FOLDS, len(set(groups))), SEED)
    fits = []
    for shrinkage in SHRINKAGES:
        held_out_NC, seen = _held_out(grams_LNN, places, logs_NC.shape[1], folds, shrinkage, width)
        fits.append((*_stacked(held_out_NC[seen], logs_NC[seen], places[seen]), shrinkage))
    _, by_head, by_scores, bias_C, shrinkage = min(fits, key=lambda fit: fit[0])
    weights_LCW, offsets_LC = [], []
    for gram_NN, centred_NW, centre_W in zip(grams_LNN, centred_LNW, centre_LW, strict=True):
        dual_NC, offset_C = _discriminant(gram_NN, places, len(bias_C), shrinkage, width)
        weights_LCW.append(dual_NC.T @ centred_NW)
        offsets_LC.append(offset_C - weights_LCW[-1] @ centre_W)
    each = by_head / len(weights_LCW)
    bias = each * np.sum(offsets_LC, axis=0) - bias_C
    bias[np.bincount(places, minlength=len(bias)) == 0] = -np.inf
    return LinearHead(each * np.stack(weights_LCW, axis=1), bias, by_scores)


def _discriminant(gram_NN: Floats, places: Ints, labels: int, shrinkage: float, width: int) -> tuple[Floats, Floats]:
    """The weights (n, C) of the rows, whose weighted sums of states are w, and the constants (C,) of the discriminant.

    `gram_NN` are the inner products of the rows' states, of `width` numbers. With the states R (n, W) around the means
    of their labels, S = R'R / n; the inverse of S_s follows from the inverse of a matrix (n, n) (Woodbury).
    """
    import numpy as np

    rows, counts = len(places), np.bincount(places, minlength=labels)
    means_NC = (places[:, None] == np.arange(labels)) / np.maximum(counts, 1)  # m_y = the sum of states by column y
    around_NN = np.eye(rows) - means_NC[:, places]  # R = around' x states
    inner_NN, to_means_NC = around_NN.T @ gram_NN @ around_NN, gram_NN @ means_NC
    # Rows of one label each have no variance around its mean, and a layer with equal states has none at all.
    variance = np.trace(inner_NN) / rows or np.trace(gram_NN) / rows or 1.0
    least, share = shrinkage * variance / width, (1 - shrinkage) / rows
    weights_NC = means_NC / least
    if share:
        solved_NC = np.linalg.solve(np.eye(rows) / share + inner_NN / least, around_NN.T @ to_means_NC)
        weights_NC = weights_NC - around_NN @ solved_NC / least**2
    constants_C = np.log(np.maximum(counts, 1) / rows) - (weights_NC * to_means_NC).sum(axis=0) / 2
    return weights_NC, constants_C


def _held_out(
    grams_LNN: Floats, places: Ints, labels: int, folds: Sequence[Sequence[int]], shrinkage: float, width: int
) -> tuple[Floats, NDArray[bool_]]:
    """The mean log p(y | h_l) (n, C) over the layers for each row, by the rows outside its fold.

    Also returns whether (n,) those rows have the row's label.
    """
    import numpy as np

    means_NC, seen = np.zeros((len(places), labels)), np.zeros(len(places), dtype=bool)
    for fold in folds:
        own, rest = list(fold), [row for row in range(len(places)) if row not in set(fold)]
        seen[own] = np.isin(places[own], places[rest])
        for gram_NN in grams_LNN:
            weights_NC, constants_C = _discriminant(gram_NN[np.ix_(rest, rest)], places[rest], labels, shrinkage, width)
            found = gram_NN[np.ix_(own, rest)] @ weights_NC + constants_C
            found[:, np.bincount(places[rest], minlength=labels) == 0] = -np.inf
            means_NC[own] += np.maximum(log_softmax(found), FLOOR) / len(grams_LNN)
    return means_NC, seen


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
