"""Random sets of a pool's rows: the best (Random&Valid), the influence of a row on their accuracy, and orders."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, permutations
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.errors import InputError, option
from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import Floats, Trials

DEV = 100  # rows of the pool on which sets are tried


def trials_of(pool: Pool) -> Trials:
    """The pool's trials, which the registry entry of a method promises."""
    assert pool.trials is not None
    return pool.trials


def random_sets(pool: Pool, shots: int, draw: random.Random) -> Iterator[list[int]]:
    """Yield random sets in random order, without end, in which all rows occur equally often, or once more.

    If the pool is balanced, a set has equal numbers of every label, and all rows of a label occur equally often.
    """
    shares = pool.shares(shots) if pool.balanced else {"": shots}
    dealt = [
        _deal(pool.by_label[label] if pool.balanced else range(len(pool)), share, draw)
        for label, share in shares.items()
    ]
    while True:
        rows = [row for hands in dealt for row in next(hands)]
        draw.shuffle(rows)
        yield rows


def _deal(rows: Sequence[int], count: int, draw: random.Random) -> Iterator[list[int]]:
    """Yield `count` different rows at a time, every row once before any is repeated."""
    left: list[int] = []
    while True:
        if len(left) < count:  # rows that are left follow the others, so that no draw has a row twice
            again = set(left)
            left += sorted(draw.sample(rows, len(rows)), key=again.__contains__)
        drawn, left = left[:count], left[count:]
        yield drawn


def dev_rows(pool: Pool, shots: int, draw: random.Random, most: int = DEV) -> list[int]:
    """At most `most` rows, or 2 `shots` if that is more, on which sets of `shots` rows are tried; in random order.

    Raises InputError for a pool that has no more than `shots` different inputs.
    """
    if (count := len(set(pool.inputs.tolist()))) <= shots:
        raise InputError.of(
            "shots",
            shots,
            f"the pool has {count} different rows, and none is left to try sets on; add rows to it, use fewer "
            f"{option('shots')}, or {option('demos_by')} random",
        )
    return draw.sample(range(len(pool)), min(len(pool), max(most, 2 * shots)))


def accuracies(pool: Pool, sets: Sequence[Sequence[int]], rows: Sequence[int]) -> Floats:
    """The accuracy (sets,) of each set on the rows whose input it lacks, 0 for none; equal shares are equal numbers."""
    probabilities = trials_of(pool).probabilities(sets, rows)  # (sets, rows, C)
    correct = probabilities.argmax(axis=2) == pool.gold[list(rows)]
    counted = np.array([~np.isin(pool.inputs[list(rows)], pool.inputs[list(each)]) for each in sets])
    accuracy: Floats = (correct & counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    return accuracy


def best_rows(pool: Pool, scores: Floats, shots: int) -> list[int]:
    """The rows with the highest scores, or of every label its share of them; the first row wins a tie."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    if not pool.balanced:
        return order[:shots]
    left = dict(pool.shares(shots))
    chosen = []
    for row in order:
        label = str(pool.rows[row].gold)
        if left[label]:
            left[label] -= 1
            chosen.append(row)
    return chosen


SETS = 30


def random_valid(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the set, in its order, with the highest accuracy on dev rows, among 30 random ones; the first wins a tie.

    Dev rows are 100 rows of the pool; a set is tried on those whose input is not in it.
    """
    dev = dev_rows(pool, shots, draw)
    sets = list(islice(random_sets(pool, shots, draw), SETS))
    return Choice(sets[int(accuracies(pool, sets, dev).argmax())], ordered=True)


OCCURRENCES = 5  # sets that hold a row
FEWEST = 20  # sets for a pool not much larger than a set


def influence(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the highest influence I(e) = mean accuracy of sets with e - mean accuracy of sets without e.

    Every row is in about 5 of the random sets of `shots` rows, and there are at least 20 of them: n = 1,000 and 8 shots
    take 625 sets. Accuracies are those on 100 rows of the pool, except those whose input is in a set. Many rows have
    the same influence; the first row wins a tie.
    """
    dev = dev_rows(pool, shots, draw)
    sets = list(islice(random_sets(pool, shots, draw), max(FEWEST, math.ceil(OCCURRENCES * len(pool) / shots))))
    accuracy, member = accuracies(pool, sets, dev), np.zeros((len(sets), len(pool)))
    for place, rows in enumerate(sets):
        member[place, rows] = 1
    inside, held = member.sum(axis=0), accuracy @ member
    # In a balanced pool, a label with as many rows as its share is in every set: those rows have no influence.
    outside, without = len(sets) - inside, accuracy.sum() - held
    influence = held / np.maximum(inside, 1) - without / np.maximum(outside, 1)
    influence = np.where((inside > 0) & (outside > 0), influence.round(12), 0.0)  # equal ones are equal numbers
    return Choice(best_rows(pool, influence, shots), influence)


ORDERS = 24


def by_global_entropy(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the order after which the predicted labels of the probing set are most evenly distributed (GlobalE).

    Lu et al. 2022, whose probing set is text that the model generates; here it is texts of the pool, without labels.
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
    rows = next(random_sets(pool, shots, draw))
    others = [row for row in range(len(pool)) if row not in set(rows)]
    probes = draw.sample(others, min(DEV, len(others))) or sorted(rows)
    orders = list(map(list, permutations(rows))) if math.factorial(len(rows)) <= ORDERS else []
    while len(orders) < min(ORDERS, math.factorial(len(rows))):  # different ones of more than so many
        drawn = draw.sample(rows, len(rows))
        orders += [drawn] if drawn not in orders else []
    entropies = [entropy(each) for each in trials_of(pool).probabilities(orders, probes)]
    return Choice(orders[entropies.index(max(entropies))], ordered=True)
