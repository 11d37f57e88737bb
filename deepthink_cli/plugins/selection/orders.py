"""GlobalE and LocalE: an order of demonstrations that favours no label (Lu et al. 2022).

In the paper, the probing set is text that the model generates; here it is texts of the pool, without their labels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.plugins.selection.random_sets import DEV, random_set, trials_of
from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import Floats

ORDERS = 24


def by_global_entropy(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the order after which the predicted labels of the probing set are most evenly distributed (GlobalE).

    The set is drawn, or is the whole pool if that has `shots` rows; 24 orders are tried. The probing set is 100 rows
    of the pool outside the set, or the set itself if there are no others. The first order wins a tie.
    """
    return _best_order(pool, shots, draw, global_entropy)


def by_local_entropy(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the order after which the model is least certain on average (LocalE); as `by_global_entropy` otherwise."""
    return _best_order(pool, shots, draw, local_entropy)


def global_entropy(probabilities: Floats) -> float:
    """Entropy in nats of the labels predicted for probing texts, from their probabilities (texts, C).

    Equally even counts give equal numbers, whichever labels have them: log n - log(prod_y c_y^c_y) / n, where the
    product is an exact integer.
    """
    counts = np.bincount(probabilities.argmax(axis=1)).tolist()
    return math.log(len(probabilities)) - math.log(math.prod(count**count for count in counts)) / len(probabilities)


def local_entropy(probabilities: Floats) -> float:
    """Mean over the probing texts of the entropy in nats of their probabilities (texts, C)."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))  # 0 log 0 = 0
    return float(-(probabilities * logs).sum(axis=1).mean())


def _best_order(pool: Pool, shots: int, draw: random.Random, entropy: Callable[[Floats], float]) -> Choice:
    rows = random_set(pool, shots, draw)
    others = [row for row in range(len(pool)) if row not in set(rows)]
    probes = draw.sample(others, min(DEV, len(others))) or sorted(rows)
    orders = _orders(rows, draw)
    entropies = [entropy(each) for each in trials_of(pool).probabilities(orders, probes)]
    return Choice(orders[entropies.index(max(entropies))], ordered=True)


def _orders(rows: list[int], draw: random.Random) -> list[list[int]]:
    """All orders of the rows, or 24 different ones if there are more."""
    if math.factorial(len(rows)) <= ORDERS:
        return list(map(list, permutations(rows)))
    orders: dict[tuple[int, ...], None] = {}
    while len(orders) < ORDERS:
        orders[tuple(draw.sample(rows, len(rows)))] = None
    return list(map(list, orders))
