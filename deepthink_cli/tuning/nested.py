"""Folds of labelled rows, and nested cross-validation: which setting is chosen, and how it does on other rows."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.calibration.registry import NONE, calibration
from deepthink_cli.tuning.grid import Setting

if TYPE_CHECKING:
    from numpy import bool_, int64
    from numpy.typing import NDArray

    from deepthink_cli.calibration.base import Floats

    Bools = NDArray[bool_]
    Ints = NDArray[int64]


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


# The log-probabilities (selections, methods, T, N, C) of held-out rows: raw ones under `none`, and under the name of
# each calibration whose bias was measured through the memory that gave them, the corrected ones.
HeldOutScores = Mapping[str, "Floats"]


@dataclass(frozen=True, eq=False)
class NestedChoice:
    """The result of a nested cross-validation: the setting chosen for each fold, and which rows (N,) are right then."""

    chosen: tuple[int, ...]
    right: Bools


def correctness(scores: HeldOutScores, gold: Ints, settings: Sequence[Setting]) -> Bools:
    """Whether each setting labels each row correctly (S, N); `gold` (N,) are the indices of the true labels.

    A calibration that is not in `scores` estimates its bias from all rows, without their labels.
    """
    return np.stack([_labels(scores, setting) == gold for setting in settings])


def _labels(scores: HeldOutScores, setting: Setting) -> Ints:
    if setting.calibration in scores:
        return np.asarray(scores[setting.calibration][setting.place].argmax(axis=-1))
    corrected = calibration(setting.calibration).corrected(scores[NONE][setting.place])
    return np.asarray(corrected.argmax(axis=-1))


def best(right: Bools) -> int:
    """The setting that labels most rows correctly (S, n); the first of equals, which is the simplest."""
    return int(right.sum(axis=1).argmax())


def choose_nested(outer: Bools, inner: Sequence[Bools], folds: Sequence[Sequence[int]]) -> NestedChoice:
    """For every fold, the setting that is best on the other folds, applied to the fold's rows.

    `outer` (S, N) is whether a row is right after a memory of all rows outside its fold. `inner[i]` (S, N - n_i) is the
    same of the rows outside fold i, in order, after memories of the rows outside fold i and outside their own fold.
    """
    chosen, right = [], np.zeros(outer.shape[1], dtype=bool)
    for of_fold, rows in zip(inner, folds, strict=True):
        chosen.append(best(of_fold))
        right[list(rows)] = outer[chosen[-1], list(rows)]
    return NestedChoice(tuple(chosen), right)
