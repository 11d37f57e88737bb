"""The rows of whose label the model is least certain, without demonstrations."""

from __future__ import annotations

import random

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.features import TINY, label_probabilities, largest


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
