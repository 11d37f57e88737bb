"""How the labels of one labelling differ from those of another one, row by row.

Knows labels and numbers; does not know models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from deepthink_cli.data.examples import Query
from deepthink_cli.evaluation.changes import Answer, Changes, ChangeTally
from deepthink_cli.evaluation.probabilities import RunningMean
from deepthink_cli.scoring.softmax import log_share


@dataclass(frozen=True)
class ChangedRow:
    """A row with another label: its number, from 0, among the rows of its source, and both labels."""

    index: int
    query: Query
    before: str
    after: str


@dataclass(frozen=True)
class Labelled:
    """What changed on rows with true labels: the shares of right labels before and after, and the changes."""

    accuracy_before: float
    accuracy_after: float
    changes: Changes


@dataclass(frozen=True)
class LabelChanges:
    """The differences between two labellings of the same `n` rows.

    `log_probability` is the mean change of the log-probability of the label that the first labelling gives, in nats,
    and `largest` the largest change of any candidate's; `labelled` is None for rows without true labels.
    """

    n: int
    rows: tuple[ChangedRow, ...]
    log_probability: float
    log_probability_ci95: tuple[float, float] | None
    largest: float
    labelled: Labelled | None

    @property
    def transitions(self) -> dict[tuple[str, str], int]:
        """How many rows changed from one label to another, the most frequent first."""
        return dict(Counter((row.before, row.after) for row in self.rows).most_common())


class LabelChangeTally:
    """Running counts over rows; only the rows whose label changed are in memory."""

    def __init__(self) -> None:
        self.rows: list[ChangedRow] = []
        self.log_probability = RunningMean()
        self.largest = 0.0
        self.labelled = ChangeTally()
        self.right = [0, 0]  # before and after

    def add(
        self,
        index: int,
        query: Query,
        labels: tuple[str, str],
        scores: tuple[Mapping[str, float], Mapping[str, float]],
    ) -> None:
        """Count one row, with both labels and both scores of each of its candidates."""
        if labels[0] != labels[1]:
            self.rows.append(ChangedRow(index, query, *labels))
        before, after = ({label: log_share(score, each.values()) for label, score in each.items()} for each in scores)
        self.log_probability.add(after[labels[0]] - before[labels[0]])
        self.largest = max(self.largest, *(abs(after[label] - before[label]) for label in before))
        if (gold := query.gold) is not None:
            self.labelled.add(gold, Answer(labels[0], before[gold]), Answer(labels[1], after[gold]))
            self.right = [count + (label == gold) for count, label in zip(self.right, labels, strict=True)]

    def result(self) -> LabelChanges:
        """The differences of all counted rows, of which there must be at least one."""
        mean, labelled = self.log_probability, None
        if count := self.labelled.log_probability.n:
            labelled = Labelled(self.right[0] / count, self.right[1] / count, self.labelled.result())
        return LabelChanges(mean.n, tuple(self.rows), mean.mean, mean.ci95, self.largest, labelled)
