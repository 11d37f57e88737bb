"""Random&Valid: the best of several random sets (Li and Qiu 2023, Table 2)."""

from __future__ import annotations

import random
from itertools import islice

from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.sets import accuracies, dev_rows, random_sets

SETS = 30


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the set, in its order, with the highest accuracy on dev rows, among 30 random ones; the first wins a tie.

    Dev rows are 100 rows of the pool; a set is tried on those that are not in it.
    """
    dev = dev_rows(pool, shots, draw)
    sets = list(islice(random_sets(pool, shots, draw), SETS))
    return Choice(sets[int(accuracies(pool, sets, dev).argmax())], ordered=True)
