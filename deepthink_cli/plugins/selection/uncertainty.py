"""The rows of whose label the model is least certain, without demonstrations, or less than of similar rows (CAL)."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.plugins.selection.features import TINY, blocks, hidden_states, label_probabilities, largest
from deepthink_cli.selection.base import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Ints, States


def entropy(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the largest entropy, -sum_y p(y | x) log p(y | x)."""
    probabilities = label_probabilities(pool)
    return largest(-(probabilities * np.log(np.maximum(probabilities, TINY))).sum(axis=1), shots)


def least_confidence(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the largest 1 - max_y p(y | x)."""
    return largest(1 - label_probabilities(pool).max(axis=1), shots)


def margin(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the smallest difference of the two largest probabilities; the score is minus that."""
    ranked = np.sort(label_probabilities(pool), axis=1)
    return largest(ranked[:, -2] - ranked[:, -1], shots)


NEIGHBOURS = 10


def cal(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows x with the largest mean over their nearest neighbours n of KL(p(y | n) || p(y | x)).

    Margatina et al. 2021, algorithm 1: the neighbours are the 10 other rows of the pool whose hidden states have the
    smallest Euclidean distance, all others if there are fewer.
    """
    probabilities = label_probabilities(pool)
    logs = np.log(np.maximum(probabilities, TINY))
    near = nearest(hidden_states(pool), min(NEIGHBOURS, len(pool) - 1))
    if not near.size:
        return largest(np.zeros(len(pool)), shots)
    divergences = probabilities[near] * (logs[near] - logs[:, None])  # (n, neighbours, C)
    # Rows with one text and two labels have the same neighbours but for each other, at other places in the sum.
    return largest(np.array([math.fsum(each) for each in divergences.sum(axis=2)]) / near.shape[1], shots)


def nearest(hidden: States, neighbours: int) -> Ints:
    """The nearest other rows (n, neighbours) of every row, in the order of the pool; among equals, the first."""
    exact, near = hidden.astype(np.float64), []
    squares = np.einsum("iw,iw->i", exact, exact)
    for rows in blocks(len(hidden)):
        distances = squares - 2 * (exact[rows] @ exact.T)  # squared, up to a constant of each row
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
        near.append(np.sort(np.argsort(distances, axis=1, kind="stable")[:, :neighbours], axis=1))
    return np.concatenate(near)
