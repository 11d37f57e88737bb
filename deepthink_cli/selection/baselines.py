"""Methods that read no model: the first rows, rows drawn uniformly, equal numbers of rows for every label."""

from __future__ import annotations

import random

from deepthink_cli.errors import InputError
from deepthink_cli.selection.base import Choice, Pool


def first(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the first rows, in their order, independently of the seed."""
    return Choice(range(shots), ordered=True)


def uniform(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw rows without replacement, each with the same probability, in random order."""
    return Choice(draw.sample(range(len(pool)), shots), ordered=True)


def stratified(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw `shots // labels` rows of each label, the remainder from all other rows, and shuffle them.

    A label with fewer rows contributes all of them. Raises InputError for fewer shots than labels.
    """
    by_label, chosen = pool.by_label, list[int]()
    if len(by_label) > shots:
        raise InputError.of(
            "shots",
            shots,
            f"stratified sampling needs a row of each of the {len(by_label)} labels; use at least "
            f"{len(by_label)}, or draw at random",
        )
    for rows in by_label.values():
        chosen += draw.sample(rows, min(shots // len(by_label), len(rows)))
    taken = set(chosen)
    chosen += draw.sample([row for row in range(len(pool)) if row not in taken], shots - len(chosen))
    draw.shuffle(chosen)
    return Choice(chosen, ordered=True)
