"""The accuracy of each iteration of a memory, next to plain in-context learning and the majority class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.evaluation.metrics import (
    Answer,
    Changes,
    ChangeTally,
    Metrics,
    Probabilities,
    ProbabilityTally,
    Tally,
)
from deepthink_cli.evaluation.tables import Table, table_by_iteration
from deepthink_cli.io.text import html_table
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.softmax import log_share

COUNTS = ("changed", "fixed", "broken")


@dataclass(frozen=True)
class Evaluation:
    """The metrics of every iteration, and the confusion table of the last one.

    `changes` since T = 1 are those of the later iterations; there are none if T = 1 was not evaluated. Free answers
    have no `probabilities`, and their changes none of a log-probability. `calibrated`
    holds the same of the corrected predictions, for every calibration.
    """

    n: int
    results: dict[int, Metrics]
    majority: tuple[str, float] | None
    chance: float
    confusion: dict[str, dict[str, int]]
    probabilities: dict[int, Probabilities]
    changes: dict[int, Changes]
    calibrated: Mapping[str, Evaluation] = field(default_factory=dict)

    @property
    def last(self) -> Metrics:
        """The metrics of the last iteration."""
        return self.results[max(self.results)]

    @property
    def true_labels(self) -> dict[str, int]:
        """How many rows have each true label; empty if every row has its own candidates."""
        return {label: sum(row.values()) for label, row in self.confusion.items()}

    def table(self) -> Table:
        """The columns and rows of a table with a row for each iteration."""
        return table_by_iteration(self.results, self.probabilities, self.changes)

    def _repr_html_(self) -> str:
        """A table for each way of scoring, for notebooks."""
        tables = {"": self, **{f", {name} calibration": each for name, each in self.calibrated.items()}}
        return "\n".join(html_table(*each.table(), f"{self.n:,} rows{by}") for by, each in tables.items())

    def as_json(self) -> dict[str, Any]:
        """The part of `eval --json` that depends on the predictions."""
        majority = None if self.majority is None else {"label": self.majority[0], "accuracy": self.majority[1]}
        return {
            "n": self.n,
            "results": [{"iteration": t, **self._metrics(t), **self._calibrated(t)} for t in self.results],
            "majority": majority,
            "chance": self.chance,
            "confusion": self.confusion,
            "true_labels": self.true_labels,
        }

    def _metrics(self, iteration: int) -> dict[str, Any]:
        changes = self.changes.get(iteration)
        if iteration not in self.probabilities:
            counts = None if changes is None else {name: getattr(changes, name) for name in COUNTS}
            return {**asdict(self.results[iteration]), "changes": counts}
        return {
            **asdict(self.results[iteration]),
            **asdict(self.probabilities[iteration]),
            "changes": None if changes is None else asdict(changes),
        }

    def _calibrated(self, iteration: int) -> dict[str, Any]:
        if not self.calibrated:
            return {}
        return {"calibrated": {name: each._metrics(iteration) for name, each in self.calibrated.items()}}


class Evaluator:
    """Counts labelled predictions, iteration by iteration, and their corrections by `calibrate`, in constant memory.

    The predictions of one query by all iterations follow each other, in any order.
    """

    def __init__(self, iterations: Sequence[int], labels: Sequence[str], calibrate: Iterable[str] = ()) -> None:
        ordered = sorted(iterations)
        self.tallies = {iteration: Tally(labels) for iteration in ordered}
        self.probabilities = {iteration: ProbabilityTally() for iteration in ordered}
        self.changes = {iteration: ChangeTally() for iteration in ordered if ordered[0] == 1 < iteration}
        self.calibrated = {name: Evaluator(iterations, labels) for name in calibrate if name != NONE}
        self.chance = 0.0
        self.memories = len(iterations)
        self.answers: list[tuple[int, Answer]] = []  # to the current query, each with its iteration

    def add(self, prediction: Prediction) -> None:
        """Count one prediction, whose query must have a true label."""
        gold, iteration = prediction.query.gold, prediction.iteration
        assert gold is not None
        self.tallies[iteration].add(gold, prediction.label, prediction.label_mean_per_token, prediction.tied)
        log_probability = 0.0
        if prediction.scores:  # there are none of free answers
            self.chance += 1 / len(prediction.scores)
            log_probability = log_share(prediction.scores[gold], prediction.scores.values())
            self.probabilities[iteration].add(log_probability, prediction.probability, prediction.label == gold)
        self.answers.append((iteration, Answer(prediction.label, log_probability)))
        if len(self.answers) == self.memories:
            answers = dict(self.answers)
            for later, changes in self.changes.items():
                changes.add(gold, answers[1], answers[later])
            self.answers.clear()
        for name, evaluator in self.calibrated.items():
            evaluator.add(prediction.calibrated[name].prediction)

    @property
    def n(self) -> int:
        """The number of rows counted so far."""
        return self.tallies[max(self.tallies)].n

    def result(self) -> Evaluation:
        """The metrics of all predictions counted so far."""
        last = self.tallies[max(self.tallies)]
        return Evaluation(
            n=last.n,
            results={iteration: tally.metrics() for iteration, tally in self.tallies.items()},
            majority=last.majority(),
            chance=self.chance / sum(tally.n for tally in self.tallies.values()),
            confusion=last.table() if last.labels else {},
            probabilities={t: tally.result() for t, tally in self.probabilities.items() if tally.log_probability.n},
            changes={iteration: tally.result() for iteration, tally in self.changes.items()},
            calibrated={name: evaluator.result() for name, evaluator in self.calibrated.items()},
        )
