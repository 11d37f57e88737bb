"""Metrics of predictions: accuracy with its interval, F1, ties and the confusion table.

Knows labels and counts; does not know models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True)
class LabelMetrics:
    """Precision, recall and F1 of one label, and how often it is the true one."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Metrics:
    """How well one iteration's predictions agree with the true labels.

    `stderr` is sqrt(p (1 - p) / n); `ci95` Wilson's interval; `macro_f1` the mean F1 over the labels
    that occur, true or predicted; `ties` counts inputs with several best candidates (the first is chosen).
    `predicted` counts the answers by label. If every input has its own candidates there are no labels to compare:
    `macro_f1` is None, `per_label` and `predicted` are empty.
    """

    accuracy: float
    stderr: float
    ci95: tuple[float, float]
    accuracy_mean_per_token: float
    macro_f1: float | None
    ties: int
    per_label: dict[str, LabelMetrics]
    predicted: dict[str, int]


class Tally:
    """Running counts of predictions: memory does not grow with their number.

    `labels` are the label words all inputs share; empty if every input has its own candidates.
    """

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.labels = tuple(labels)
        self.confusion: Counter[tuple[str, str]] = Counter()
        self.n = self.right = self.right_mean_per_token = self.ties = 0

    def add(self, gold: str, predicted: str, predicted_mean_per_token: str, tied: bool) -> None:
        """Count one prediction."""
        self.n += 1
        self.right += gold == predicted
        self.right_mean_per_token += gold == predicted_mean_per_token
        self.ties += tied
        if self.labels:
            self.confusion[gold, predicted] += 1

    def metrics(self) -> Metrics:
        """The metrics of all counted predictions, of which there must be at least one."""
        accuracy = self.right / self.n
        per_label = {label: self._label(label) for label in self._occurring()}
        return Metrics(
            accuracy=accuracy,
            stderr=math.sqrt(accuracy * (1 - accuracy) / self.n),
            ci95=wilson(accuracy, self.n),
            accuracy_mean_per_token=self.right_mean_per_token / self.n,
            macro_f1=sum(label.f1 for label in per_label.values()) / len(per_label) if per_label else None,
            ties=self.ties,
            per_label=per_label,
            predicted={label: self._predicted(label) for label in per_label},
        )

    def majority(self) -> tuple[str, float] | None:
        """The most frequent true label and the accuracy of always answering it."""
        if not self.labels:
            return None
        gold: Counter[str] = Counter()
        for (label, _), count in self.confusion.items():
            gold[label] += count
        label = max(self._occurring(), key=lambda label: gold[label])
        return label, gold[label] / self.n

    def table(self) -> dict[str, dict[str, int]]:
        """The confusion table, true label first: {gold: {predicted: count}}, in the order of the labels."""
        order = dict.fromkeys([*self.labels, *self._occurring()])
        return {gold: {guess: self.confusion[gold, guess] for guess in order} for gold in order}

    def _occurring(self) -> list[str]:
        occurring = {label for pair in self.confusion for label in pair}
        return [label for label in self.labels if label in occurring] + sorted(occurring - set(self.labels))

    def _predicted(self, label: str) -> int:
        return sum(count for (_, guess), count in self.confusion.items() if guess == label)

    def _label(self, label: str) -> LabelMetrics:
        right = self.confusion[label, label]
        support = sum(count for (gold, _), count in self.confusion.items() if gold == label)
        guessed = self._predicted(label)
        precision = right / guessed if guessed else 0.0
        recall = right / support if support else 0.0
        f1 = 2 * right / (guessed + support)
        return LabelMetrics(precision, recall, f1, support)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of n (Wilson 1927, eq. 2)."""
    centre = share + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
