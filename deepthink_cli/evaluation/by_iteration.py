"""The accuracy of each iteration of a memory, next to plain in-context learning and the majority class.

Also the evaluation of the rows that are not among the demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Query
from deepthink_cli.data.same_input import is_among
from deepthink_cli.evaluation.metrics import (
    Answer,
    Changes,
    ChangeTally,
    Metrics,
    Probabilities,
    ProbabilityTally,
    Table,
    Tally,
    table_by_iteration,
)
from deepthink_cli.events import Tell, Warn
from deepthink_cli.io.text import html_table
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.softmax import log_share

COUNTS = ("changed", "fixed", "broken")


@dataclass(frozen=True)
class Evaluation:
    """The metrics of every iteration, and the confusion table of the last one.

    `changes` are the changes of later iterations since T = 1; empty if T = 1 was not evaluated. Free answers have no
    `probabilities`, and their changes have no log-probability. `calibrated` has the evaluation of the corrected
    predictions for every calibration.
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
        """The number of rows with each true label; empty if every row has its own candidates."""
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
    """Counts labelled predictions of every iteration, and their corrections by `calibrate`, in constant memory.

    The predictions of a query by all iterations must come one after another, in any order.
    """

    def __init__(self, iterations: Sequence[int], labels: Sequence[str], calibrate: Iterable[str] = ()) -> None:
        ordered = sorted(iterations)
        self.tallies = {iteration: Tally(labels) for iteration in ordered}
        self.probabilities = {iteration: ProbabilityTally() for iteration in ordered}
        self.changes = {iteration: ChangeTally() for iteration in ordered if ordered[0] == 1 < iteration}
        self.calibrated = {name: Evaluator(iterations, labels) for name in calibrate if name != NONE}
        self.chance = 0.0
        self.memories = len(iterations)
        self.answers: list[tuple[int, Answer]] = []  # the answers to the current query, each with its iteration

    def add(self, prediction: Prediction) -> None:
        """Count one prediction, whose query must have a true label."""
        gold, iteration = prediction.query.gold, prediction.iteration
        assert gold is not None
        self.tallies[iteration].add(gold, prediction.label, prediction.label_mean_per_token, prediction.tied)
        log_probability = 0.0
        if prediction.scores:  # free answers have none
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


@dataclass(frozen=True)
class Overlap:
    """The number of rows that are demonstrations, and the evaluation of the other rows; None without other rows."""

    rows: int
    rest: Evaluation | None

    def as_json(self) -> dict[str, Any]:
        """The overlap as JSON values."""
        return {"rows": self.rows, "rest": None if self.rest is None else self.rest.as_json()}


class OverlapEvaluator:
    """Evaluates the rows that are not among the demonstrations, in constant memory.

    Rows are compared with the demonstrations as the memory's template writes both (`is_among`).
    """

    def __init__(
        self,
        demonstrations: Iterable[TokenizedDemonstrations],
        iterations: Sequence[int],
        calibrate: Sequence[str] = (),
    ) -> None:
        first, *others = demonstrations
        examples = [example for each in (first, *others) for example in each.examples]
        self.was_read = is_among(examples, first.template, first.labels)
        self.rest = Evaluator(iterations, first.labels, calibrate)
        self.memories, self.seen = len(iterations), 0
        self.query: Query | None = None
        self.known_query = False

    def add(self, prediction: Prediction) -> None:
        """Count one prediction; the predictions of a query by all iterations must come one after another."""
        query = prediction.query
        if query is not self.query:
            self.query, self.known_query = query, self.was_read(query)
        if self.known_query:
            self.seen += 1
        else:
            self.rest.add(prediction)

    def result(self) -> Overlap | None:
        """The overlap; None if no row is a demonstration."""
        if not self.seen:
            return None
        return Overlap(self.seen // self.memories, self.rest.result() if self.rest.n else None)


def warn_of_overlap(overlap: Overlap | None, n: int, name: str, tell: Tell) -> None:
    """Warn that some of `n` rows, or all, are demonstrations of the memory `name`."""
    if overlap is None:
        return
    which = "all rows are" if overlap.rest is None else f"{overlap.rows} of {n} rows are"
    means = "the accuracy says nothing about new rows" if overlap.rest is None else "the others are reported apart"
    tell(Warn(f"{which} among the demonstrations of {name}: {means}"))
