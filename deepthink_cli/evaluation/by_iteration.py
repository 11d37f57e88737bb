"""The accuracy of each iteration of a memory, next to plain in-context learning and the majority class.

Also the evaluation of the rows that are not among the demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.evaluation.metrics import Answers, Changes, Metrics, Probabilities, Table, table_by_iteration
from deepthink_cli.events import Tell, Warn
from deepthink_cli.io.text import html_table
from deepthink_cli.scoring.prediction import Prediction

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
    """Keeps the answers to labelled rows of every iteration, and their corrections by `calibrate`.

    The predictions of one iteration must come in the order of the rows, which is the same for all iterations.
    """

    def __init__(self, iterations: Iterable[int], labels: Sequence[str], calibrate: Iterable[str] = ()) -> None:
        ordered = sorted(iterations)
        self.raw = {iteration: Answers(labels) for iteration in ordered}
        self.calibrated = {name: {t: Answers(labels) for t in ordered} for name in calibrate if name != NONE}

    def add(self, prediction: Prediction) -> None:
        """Keep one prediction, whose query must have a true label."""
        self.raw[prediction.iteration].add(prediction)
        for name, answers in self.calibrated.items():
            answers[prediction.iteration].add(prediction.calibrated[name].prediction)

    @property
    def n(self) -> int:
        """The number of rows so far."""
        return len(self.raw[max(self.raw)].gold)

    def last(self, calibrate: Sequence[str]) -> Answers:
        """The answers of the last iteration, by the first calibration, or by the raw scores without a calibration."""
        answers = self.calibrated.get("".join(calibrate[:1]), self.raw)
        return answers[max(answers)]

    def result(self) -> Evaluation:
        """The metrics of all predictions so far."""
        by_name = {name: _evaluation(answers) for name, answers in self.calibrated.items()}
        return replace(_evaluation(self.raw), calibrated=by_name)


def _evaluation(answers: Mapping[int, Answers]) -> Evaluation:
    first, last = min(answers), answers[max(answers)]
    return Evaluation(
        n=len(last.gold),
        results={iteration: each.metrics() for iteration, each in answers.items()},
        majority=last.majority(),
        chance=fmean(last.chances or [0.0]),
        confusion=last.confusion(),
        probabilities={iteration: each.quality() for iteration, each in answers.items() if each.probabilities},
        changes={t: each.changes_since(answers[1]) for t, each in answers.items() if first == 1 < t},
    )


@dataclass(frozen=True)
class Overlap:
    """The number of rows that are demonstrations, and the evaluation of the other rows; None without other rows."""

    rows: int
    rest: Evaluation | None

    def as_json(self) -> dict[str, Any]:
        """The overlap as JSON values."""
        return {"rows": self.rows, "rest": None if self.rest is None else self.rest.as_json()}

    def warn(self, n: int, name: str, tell: Tell) -> None:
        """Warn that some of `n` rows, or all, are demonstrations of the memory `name`."""
        which = "all rows are" if self.rest is None else f"{self.rows} of {n} rows are"
        means = "the accuracy says nothing about new rows" if self.rest is None else "the others are reported apart"
        tell(Warn(f"{which} among the demonstrations of {name}: {means}"))
