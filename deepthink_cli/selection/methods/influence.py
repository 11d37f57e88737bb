"""Influence of a row on accuracy, from many random sets (Nguyen and Wong 2023)."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import islice

import numpy as np

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.methods.random_sets import best_rows, dev_rows, random_sets, right_of

OCCURRENCES = 5  # sets that hold a row
FEWEST = 20  # sets for a pool not much larger than a set


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the highest influence I(e) = mean accuracy of sets with e - mean accuracy of sets without e.

    Every row is in about 5 of the random sets of `shots` rows, and there are at least 20 of them: n = 1,000 and 8 shots
    take 625 sets. Accuracies are those on 100 rows of the pool, except the rows of a set. Means are exact, as many rows
    have the same influence; the first row wins a tie.
    """
    dev = dev_rows(pool, shots, draw)
    sets = list(islice(random_sets(pool, shots, draw), max(FEWEST, math.ceil(OCCURRENCES * len(pool) / shots))))
    right, counted = (each.tolist() for each in right_of(pool, sets, dev))
    accuracy = [Fraction(*each) for each in zip(right, counted, strict=True)]
    total, inside, held = sum(accuracy, Fraction(0)), [0] * len(pool), [Fraction(0)] * len(pool)
    for rows, of_set in zip(sets, accuracy, strict=True):
        for row in rows:
            inside[row] += 1
            held[row] += of_set
    # In a balanced pool, a label with as many rows as its share is in every set: those rows have no influence.
    outside = [len(sets) - count for count in inside]
    influence = np.array(
        [
            float(with_row / n - (total - with_row) / others) if n and others else 0.0
            for with_row, n, others in zip(held, inside, outside, strict=True)
        ]
    )
    return Choice(best_rows(pool, influence, shots), influence)
