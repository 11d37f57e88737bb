"""Methods by what the model says of each row alone: hidden states, or the probabilities of its label."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.plugins.selection.features import (
    TINY,
    Gains,
    blocks,
    distances,
    greedy,
    hidden_states,
    label_probabilities,
    largest,
)
from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import Floats, Ints, States


def herding(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose at step t the row with the smallest || t mu - sum_{s in S} h_s - h_x ||; the score is minus that.

    mu is the mean hidden state of the pool, S the rows chosen before (Welling 2009). No row is chosen twice.
    """
    hidden = hidden_states(pool)

    def objective() -> Gains:
        mean: Floats = hidden.mean(axis=0, dtype=np.float64)
        target = mean
        while True:
            row = yield -distances(hidden, target)
            target = target + mean - hidden[row]

    return greedy(objective(), len(pool), shots)


def k_center(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw a first row, then choose the row that is farthest from those chosen, argmax_x min_{s in S} ||h_x - h_s||.

    Sener and Savarese 2018, algorithm 1. The score of a row is that distance, of a chosen row when it was chosen; the
    drawn row has the distance of the row that is farthest from it.
    """
    hidden = hidden_states(pool)
    first = draw.randrange(len(pool))

    def objective() -> Gains:
        nearest = distances(hidden, hidden[first])
        gains = np.full(len(pool), -np.inf)
        gains[first] = nearest.max()
        yield gains
        while True:
            row = yield nearest
            nearest = np.minimum(nearest, distances(hidden, hidden[row]))

    return greedy(objective(), len(pool), shots)


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
