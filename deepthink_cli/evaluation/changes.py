"""What thinking changed since T = 1: labels that became right or wrong, and the log-probability of the true label.

Knows labels and numbers; does not know models.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepthink_cli.evaluation.probabilities import RunningMean


@dataclass(frozen=True)
class Answer:
    """The answer of one iteration to one row: its label, and the log-probability of the true label in nats."""

    label: str
    log_probability: float


@dataclass(frozen=True)
class Changes:
    """The changes of one iteration since T = 1, over the same rows.

    `changed` counts rows with another label; of these `fixed` became right and `broken` wrong. `log_probability` is the
    mean change of the true label's log-probability, in nats; its interval is Student's, of paired differences, and None
    for a single row.
    """

    changed: int
    fixed: int
    broken: int
    log_probability: float
    log_probability_ci95: tuple[float, float] | None


class ChangeTally:
    """Running counts of changes: memory does not grow with the number of rows."""

    def __init__(self) -> None:
        self.changed = self.fixed = self.broken = 0
        self.log_probability = RunningMean()

    def add(self, gold: str, first: Answer, later: Answer) -> None:
        """Count one row: its true label, and its answers at T = 1 and later."""
        self.changed += first.label != later.label
        self.fixed += first.label != gold == later.label
        self.broken += first.label == gold != later.label
        self.log_probability.add(later.log_probability - first.log_probability)

    def result(self) -> Changes:
        """The changes of all counted rows, of which there must be at least one."""
        mean = self.log_probability
        return Changes(self.changed, self.fixed, self.broken, mean.mean, mean.ci95)
