"""Evaluate a memory on rows with several labels: micro-F1, macro-F1 and the share of rows with exactly their labels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Skipped
from deepthink_cli.evaluation.evaluate import evaluated, load_for
from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.evaluation.threshold import MICRO_F1, Judged
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.multilabel import GivenLabels, LabelSets, metrics
from deepthink_cli.prediction.predict import tell_of_several
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import Scoring
from deepthink_cli.tasks.rows import EvaluatedRows


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
                {"iteration": t, **metrics(sets), "subset_accuracy_ci95": list(wilson(sets.subset_accuracy, sets.n))}
                for t, sets in self.results.items()
            ],
            "thresholds": None if stored is None else stored.at,
            "fitted_on_these_rows": self.optimistic,
            "memory": {"file": self.memory.name, "sha256": self.memory.sha256},
            "seconds": self.seconds,
        }


def evaluate_label_sets(
    scorer: Scorer,
    rows: EvaluatedRows,
    *,
    options: ModelOptions | None = None,
    observe: Callable[[Prediction], None] | None = None,
    skip: Callable[[Skipped], None] | None = None,
    tell: Tell = silent,
) -> LabelSetsReport:
    """Evaluate a memory on rows with several labels, next to plain in-context learning (T = 1).

    The arguments are as in `evaluate`. Raises InputError for rows or thresholds that do not fit the memory.
    """
    memory, demonstrations = scorer.memory, scorer.demonstrations
    given = GivenLabels.of(memory.provenance, scorer.scoring, memory.name)
    tell_of_several(scorer, tell)
    loaded, skipped = load_for(scorer, rows, options, skip is not None, tell), Counter(rows.skipped)
    results = {t: LabelSets(demonstrations.labels) for t in sorted(each.iteration for each in loaded.members[0])}
    for row in evaluated(loaded, rows, skipped, observe, skip, tell):
        true = demonstrations.template.labels_of(row.query.gold or "")
        results[row.iteration].add(frozenset(true), frozenset(given(row)))
    seconds = time.perf_counter() - loaded.started
    return LabelSetsReport(memory, scorer.scoring, rows.split, results, dict(skipped), seconds)
