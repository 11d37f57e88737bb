"""Estimates of a bias that makes labels equally likely, and of the mean hidden states of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.scoring.heads import LinearHead
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from deepthink_cli.scoring.softmax import Floats

EVEN = 1e-6  # how near to 1/C the mean shares are after log_matched
_WIDE = math.log(1e4)  # the slope of squared distances is sought within this factor of its start


def log_matched(logs: Floats) -> Floats:
    """log b(y), of mean 0, for which the mean of softmax(log p(y | x) - log b(y)) over the inputs is uniform.

    This is the fixed point of repeated batch calibration: the mean probability of every label is 1/C, whatever constant
    is added to a label's scores. Saerens et al. (2002) adjust posteriors to a known prior in the same way. It is the
    minimum of the convex

        1/m sum_i log sum_y exp(log p(y | x_i) - log b(y)) + 1/C sum_y log b(y).

    Raises DeepThinkError if no bias is found.
    """
    from scipy.optimize import minimize

    def loss(bias: Floats) -> tuple[float, Floats]:
        shifted = logs - bias
        norms = np.logaddexp.reduce(shifted, axis=1, keepdims=True)
        return float(norms.mean() + bias.mean()), 1 / len(bias) - np.exp(shifted - norms).mean(axis=0)

    found = minimize(loss, logs.mean(axis=0), method="BFGS", jac=True, options={"gtol": 1e-10})
    if not np.abs(found.jac).max() < EVEN:
        raise DeepThinkError(
            f"no bias makes the labels equally likely over the {len(logs)} inputs: {found.nit} steps found none"
        )
    return np.asarray(found.x - found.x.mean(), dtype=np.float64)


def nearest_mean(states: Floats, logs: Floats, gold: Sequence[int], groups: Sequence[int]) -> LinearHead:
    """The head whose scores are -a |h - c_y|^2, up to a constant of the row, by the mean states c (C, W).

    This is hidden calibration (Cho et al. 2025, arXiv 2406.16535).

    `states` (n, L, W) are hidden states of rows, whose last layer is used, `logs` (n, C) their labels' scores, which
    are not, `gold` (n,) the places of their true labels, and `groups` (n,) the numbers of their inputs.

    The slope a is the minimum of -sum_i log softmax(-a |h_i - c|^2)[gold_i] + log(2 a s^2)^2 / 2. The means c leave out
    the rows of row i's own input; s^2 is the mean squared distance of a row from the mean of its own label. Rows
    without others of their label are left out. Raises InputError if all rows of each label have the same state.
    """
    from scipy.optimize import minimize_scalar

    states_NW, places, inputs = np.asarray(states, dtype=np.float64)[:, -1], np.asarray(gold), np.asarray(groups)
    counts, rows = np.bincount(places, minlength=np.shape(logs)[1]), np.arange(len(places))
    sums = np.stack([states_NW[places == label].sum(axis=0) for label in range(len(counts))])
    means = sums / np.maximum(counts, 1)[:, None]
    squared_NC = np.stack([((states_NW - mean) ** 2).sum(axis=1) for mean in means], axis=1)
    squared_NC[:, counts == 0] = np.inf
    for number in np.unique(inputs):
        same = np.flatnonzero(inputs == number)
        for label in np.unique(places[same]):
            own = same[places[same] == label]
            others = counts[label] - len(own)
            mean = (sums[label] - states_NW[own].sum(axis=0)) / max(others, 1)
            squared_NC[same, label] = ((states_NW[same] - mean) ** 2).sum(axis=1) if others else np.inf
    rows = rows[np.isfinite(squared_NC[rows, places])]
    squared_NC, places = squared_NC[rows], places[rows]
    rows = np.arange(len(rows))
    variance = squared_NC[rows, places].mean() if len(rows) else 1.0
    if not variance:
        raise InputError("the rows of each label are all the same to the model; give rows that differ")

    def loss(log_a: float) -> float:
        scores = -np.exp(log_a) / (2 * variance) * squared_NC
        return float(log_a**2 / 2 - log_softmax(scores)[rows, places].sum())

    slope = math.exp(minimize_scalar(loss, bounds=(-_WIDE, _WIDE), method="bounded").x) / (2 * variance)
    weights = np.zeros((len(counts), np.shape(states)[1], states_NW.shape[1]))
    weights[:, -1] = 2 * slope * means
    return LinearHead(weights, np.where(counts > 0, -slope * (means**2).sum(axis=1), -np.inf))
