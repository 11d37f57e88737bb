"""Split labelled rows into folds."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import combinations

HeldOut = tuple[int, ...]  # the folds that a memory is not made of: one, or two in increasing order


def split(labels: Sequence[str], texts: Sequence[Hashable], count: int, seed: int) -> list[tuple[int, ...]]:
    """`count` folds of row numbers, in increasing order, with every label spread evenly over them.

    Rows with the same text are in one fold, so that no held-out text is among the demonstrations. Every fold has a row
    if `count` is at most the number of distinct texts.
    """
    groups: dict[Hashable, list[int]] = {}
    for row, text in enumerate(texts):
        groups.setdefault(text, []).append(row)
    by_label: dict[str, list[list[int]]] = {}
    for rows in groups.values():
        by_label.setdefault(labels[rows[0]], []).append(rows)
    draw, folds, dealt = random.Random(seed), [list[int]() for _ in range(count)], 0
    for label in sorted(by_label):
        for rows in draw.sample(by_label[label], len(by_label[label])):
            folds[dealt % count] += rows
            dealt += 1
    return [tuple(sorted(fold)) for fold in folds]


def held_out(count: int) -> list[HeldOut]:
    """The folds that each memory of a nested cross-validation leaves out: every fold, and every pair of folds."""
    return [*((fold,) for fold in range(count)), *combinations(range(count), 2)]
