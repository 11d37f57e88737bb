"""Equal numbers of rows for every label."""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepthink_cli.data.examples import Query
from deepthink_cli.errors import InputError


def choose(pool: Sequence[Query], shots: int, draw: random.Random) -> list[Query]:
    """Draw `shots // labels` rows of each label, the remainder from all other rows, and shuffle them.

    A label with fewer rows contributes all of them. Raises InputError for fewer shots than labels.
    """
    chosen = []
    by_label = _by_label(pool, shots)
    for queries in by_label.values():
        chosen += draw.sample(queries, min(shots // len(by_label), len(queries)))
    taken = set(map(id, chosen))
    chosen += draw.sample([query for query in pool if id(query) not in taken], shots - len(chosen))
    draw.shuffle(chosen)
    return chosen


def _by_label(pool: Sequence[Query], shots: int) -> dict[str, list[Query]]:
    """The rows of each label, in alphabetical order of the labels."""
    by_label: dict[str, list[Query]] = {}
    for query in pool:
        by_label.setdefault(str(query.gold), []).append(query)
    if len(by_label) > shots:
        raise InputError(
            f"--shots {shots}: stratified sampling needs a row of each of the {len(by_label)} labels; "
            f"use at least {len(by_label)}, or --sampling random"
        )
    return dict(sorted(by_label.items()))
