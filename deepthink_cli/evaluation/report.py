"""What an evaluation tells: its events, and the reports of rows with one label and of rows with several."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from deepthink_cli.advice import few_demonstrations, few_evaluated, no_better_than_constant, no_difference
from deepthink_cli.artifact.metadata import rule_as_json
from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.bounded import Probable
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.evaluation.metrics import Evaluation, wilson
from deepthink_cli.evaluation.threshold import ACCURACY, LOG_PROBABILITY, MICRO_F1, Judged
from deepthink_cli.events import Event
from deepthink_cli.io.text import printable
from deepthink_cli.multilabel import LabelSets
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import Scoring


@dataclass(frozen=True)
class EvaluationStarted(Event):
    """The rows will now be scored with this memory, and corrected by these calibrations."""

    memory: OpenedMemory
    calibrate: tuple[str, ...]


@dataclass(frozen=True)
class RowPredicted(Event):
    """A row was scored at one iteration; the events of its iterations come one after another."""

    prediction: Prediction


@dataclass(frozen=True)
class EvaluationEnded(Event):
    """All rows were scored."""

    report: EvaluationReport


@dataclass(frozen=True)
class Overlap:
    """The number of rows that are demonstrations, and the evaluation of the other rows; None without other rows."""

    rows: int
    rest: Evaluation | None

    def as_json(self) -> dict[str, Any]:
        """The overlap as JSON values."""
        return {"rows": self.rows, "rest": None if self.rest is None else self.rest.as_json()}


@dataclass(frozen=True)
class EvaluationReport:
    """The content of `deepthink eval --json`: the metrics of every iteration, the rows and the memory.

    `applied`, `judged` and `accuracy` are by the first calibration of the scorer, or by the raw scores. `overlap` is
    set if rows are among the demonstrations. `unused_chat`: the model has a chat template that the memory does not use.
    `metric` is the name of the judged metric. `coverage` has the bounds of errors that the memory's labelled rows show,
    `probable` the errors among the most probable labels of the evaluated rows.
    """

    evaluation: Evaluation
    scorer: Scorer
    task: str | None
    split: str
    protocol: str | None
    skipped: dict[str, int]
    seconds: float
    overlap: Overlap | None = None
    unused_chat: bool = False
    metric: str = ACCURACY
    coverage: tuple[Probable, ...] = ()
    probable: tuple[Probable, ...] = ()

    @property
    def memory(self) -> OpenedMemory:
        """The memory that was evaluated."""
        return self.scorer.memory

    @property
    def calibrate(self) -> tuple[str, ...]:
        """The names of the calibrations."""
        return self.scorer.calibrate

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The names of the memories whose log-probabilities were averaged with the memory's."""
        return tuple(each.name for each in self.scorer.others)

    @property
    def inputs_per_second(self) -> float:
        """Evaluated rows per second, including the time to load the model, if it was loaded."""
        return self.evaluation.n / self.seconds

    @property
    def applied(self) -> Evaluation:
        """The evaluation of the predictions by the first calibration, or by the raw scores without a calibration."""
        return self.evaluation.calibrated.get("".join(self.calibrate[:1]), self.evaluation)

    @property
    def judged(self) -> Judged:
        """The metric of the last iteration, by the first calibration; `--fail-under` compares it."""
        found = self.applied.probabilities if self.metric == LOG_PROBABILITY else self.applied.results
        return Judged.of(found, self.metric, self.applied.n, (*self.calibrate, NONE)[0])

    @property
    def accuracy(self) -> float:
        """The accuracy of the last iteration, by the first calibration."""
        return self.applied.last.accuracy

    @property
    def advice(self) -> list[str]:
        """Advice for the next step, a sentence for each sign: few rows of a label, no use, no effect of T."""
        applied, demonstrations = self.applied, self.memory.provenance.demonstrations
        last = max(applied.results)
        changes = applied.changes.get(last)
        useless = no_better_than_constant(applied.last.accuracy, applied.majority, self.unused_chat)
        return [
            *few_demonstrations(demonstrations.label_counts),
            *few_evaluated(applied.true_labels),
            *(useless or ([] if changes is None else no_difference(last, changes.p))),
        ]

    def _repr_html_(self) -> str:
        """The memory, the rows and the tables of the evaluation, for notebooks."""
        made = self.memory.provenance
        lines = [
            f"{self.memory.name}: {len(made.demonstrations.examples)} demonstrations, {made.model.id}",
            f"{self.task or made.task or 'rows'}, {self.split}",
            *(f"skipped {count}: {reason}" for reason, count in self.skipped.items()),
        ]
        return "\n".join([*(f"<p>{escape(printable(line))}</p>" for line in lines), self.evaluation._repr_html_()])

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        provenance, method = self.memory.provenance, self.memory.provenance.method
        memory = {
            "file": self.memory.name,
            "model": provenance.model.id,
            **rule_as_json(method.update),
            "positions": method.positions,
            "iterations": method.iterations,
            "kept": list(self.memory.kept),
            "shots": len(provenance.demonstrations.examples),
            "sha256": self.memory.sha256,
            **({"technique": str(provenance.technique)} if provenance.technique else {}),
        }
        return {
            "task": self.task or provenance.task,
            "split": self.split,
            "protocol": self.protocol,
            "skipped": self.skipped,
            **self.scorer.scoring.recorded,
            "judged": asdict(self.judged),
            **self.evaluation.as_json(),
            **({"demonstrations_among_rows": self.overlap.as_json()} if self.overlap else {}),
            **({"coverage": [each.as_json() for each in self.coverage]} if self.coverage else {}),
            **({"error_by_coverage": [each.as_json() for each in self.probable]} if self.probable else {}),
            "memory": memory,
            **({"ensemble": list(self.ensemble)} if self.ensemble else {}),
            "seconds": self.seconds,
            "inputs_per_second": self.inputs_per_second,
            "next": self.advice,
        }


@dataclass(frozen=True)
class LabelSetsReport:
    """The content of `deepthink eval --json` for rows with several labels: `results` by iteration, T = 1 included.

    `metric` is the name of the judged metric.
    """

    memory: OpenedMemory
    scoring: Scoring
    split: str
    results: dict[int, LabelSets]
    skipped: dict[str, int]
    seconds: float
    metric: str = MICRO_F1

    @property
    def judged(self) -> Judged:
        """The metric of the last iteration; `--fail-under` compares it."""
        return Judged.of(self.results, self.metric, self.last.n, NONE)

    @property
    def last(self) -> LabelSets:
        """The counts of the last iteration."""
        return self.results[max(self.results)]

    @property
    def optimistic(self) -> bool:
        """Whether the thresholds seem to be fitted on the same rows, by the name of their file."""
        stored = self.memory.provenance.thresholds
        return stored is not None and self.split.replace("\\", "/").rpartition("/")[2] == stored.source

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        stored = self.memory.provenance.thresholds
        return {
            "split": self.split,
            "skipped": self.skipped,
            **self.scoring.recorded,
            "judged": asdict(self.judged),
            "n": self.last.n,
            "results": [
                {"iteration": t, **sets.as_json(), "subset_accuracy_ci95": list(wilson(sets.subset_accuracy, sets.n))}
                for t, sets in self.results.items()
            ],
            "thresholds": None if stored is None else stored.at,
            "fitted_on_these_rows": self.optimistic,
            "memory": {"file": self.memory.name, "sha256": self.memory.sha256},
            "seconds": self.seconds,
        }
