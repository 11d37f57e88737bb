"""Influence of a row on accuracy, from many random sets (Nguyen and Wong 2023)."""

from __future__ import annotations

import math
import random
from itertools import islice

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.sets import accuracies, best_rows, dev_rows, random_sets

OCCURRENCES = 5  # sets that hold a row
FEWEST = 20  # sets for a pool not much larger than a set


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the highest influence I(e) = mean accuracy of sets with e - mean accuracy of sets without e.

    Every row is in about 5 of the random sets of `shots` rows, and there are at least 20 of them: n = 1,000 and 8 shots
    take 625 sets. Accuracies are those on 100 rows of the pool, except the rows of a set.
    """
    dev = dev_rows(pool, shots, draw)
    sets = list(islice(random_sets(pool, shots, draw), max(FEWEST, math.ceil(OCCURRENCES * len(pool) / shots))))
    accuracy = accuracies(pool, sets, dev)  # (M,)
    held = np.zeros((len(sets), len(pool)), dtype=bool)
    for number, rows in enumerate(sets):
        held[number, rows] = True
    # In a balanced pool, a label with as many rows as its share is in every set: those rows have no influence.
    inside, outside = held.sum(axis=0), (~held).sum(axis=0)
    influence = (accuracy @ held) / np.maximum(inside, 1) - (accuracy @ ~held) / np.maximum(outside, 1)
    influence[(inside == 0) | (outside == 0)] = 0.0
    return Choice(best_rows(pool, influence, shots), influence)
