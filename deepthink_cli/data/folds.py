"""Folds of rows for a cross-validation."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

FOLDS, SEED = 5, 0  # of the cross-validation of a correction


def split(labels: Sequence[str], groups: Sequence[int], count: int, seed: int) -> list[tuple[int, ...]]:
    """`count` folds of row numbers, in increasing order; every label is spread evenly over the folds.

    `groups` are the numbers of the rows' inputs. The rows of one input are in one fold, so that no held-out input is
    among the other rows. Every fold has a row if `count` is at most the number of different inputs.
    """
    of_input: dict[int, list[int]] = {}
    for row, number in enumerate(groups):
        of_input.setdefault(number, []).append(row)
    by_label: dict[str, list[list[int]]] = {}
    for rows in of_input.values():
        by_label.setdefault(labels[rows[0]], []).append(rows)
    draw, folds, dealt = random.Random(seed), [list[int]() for _ in range(count)], 0
    for label in sorted(by_label):
        for rows in draw.sample(by_label[label], len(by_label[label])):
            folds[dealt % count] += rows
            dealt += 1
    return [tuple(sorted(fold)) for fold in folds]


def parted(labels: Sequence[str], groups: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The rows of each of `FOLDS` folds, and the rows outside it; there are fewer folds if there are fewer inputs."""
    for fold in split(labels, groups, min(FOLDS, len(set(groups))), SEED):
        inside = set(fold)
        yield list(fold), [row for row in range(len(labels)) if row not in inside]
