"""A pool of made-up rows, and a model of it that is a function of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.data.examples import Query
from deepthink_cli.selection.registry import Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import Floats

LABELS = ("bad", "fair", "good")


class FakeTrials:
    """Label probabilities that depend on which demonstrations precede a row, and on their order."""

    def __init__(self, gold: Sequence[int], seed: int = 0, labels: int = 3) -> None:
        random = np.random.default_rng(seed)
        self.gold = gold
        self.prior = random.normal(size=(len(gold), labels))
        self.pull = random.normal(size=(len(gold), len(gold)))  # of a demonstration on a row, towards its label
        self.tried = list[tuple[tuple[int, ...], tuple[int, ...]]]()

    def probabilities(self, sets: Sequence[Sequence[int]], rows: Sequence[int]) -> Floats:
        """Probabilities (sets, rows, C); later demonstrations count more."""
        self.tried += [(tuple(each), tuple(rows)) for each in sets]
        return np.array([[self.one(each, row) for row in rows] for each in sets])

    def one(self, demonstrations: Sequence[int], row: int) -> Floats:
        """The probabilities (C,) of one row."""
        logits = self.prior[row].copy()
        for place, other in enumerate(demonstrations, start=1):
            logits[self.gold[other]] += self.pull[other, row] * place / len(demonstrations)
        weights = np.exp(logits)
        return np.asarray(weights / weights.sum())

    def accuracy(self, demonstrations: Sequence[int], rows: Sequence[int]) -> float:
        """The share of the rows that are classified correctly, by its definition."""
        right = [int(self.one(demonstrations, row).argmax()) == self.gold[row] for row in rows]
        return sum(right) / len(right)


def fake_pool(rows: int, seed: int = 0, balanced: bool = False, labels: int = 3) -> tuple[Pool, FakeTrials]:
    """A pool with its trials; every label has as many rows as the others, or one more."""
    names = LABELS[:labels]
    trials = FakeTrials([row % labels for row in range(rows)], seed, labels)
    queries = [Query(f"text {row}", names, names[row % labels]) for row in range(rows)]
    return Pool(queries, trials=trials, balanced=balanced), trials
