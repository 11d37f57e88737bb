"""Evaluate a memory on rows with several labels: micro-F1, macro-F1 and the share of rows with exactly their labels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from deepthink_cli.artifact.opening import OpenedMemory, find_its_model, load_both, with_first_reading
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Skipped
from deepthink_cli.evaluation.evaluate import scored_rows, without_skipped
from deepthink_cli.evaluation.judged import MICRO_F1, Judged
from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.multilabel import GivenLabels, LabelSets, metrics
from deepthink_cli.options import Keep, ScoreName
from deepthink_cli.prediction.predict import tell_of_several
from deepthink_cli.prediction.rows import scored_by
from deepthink_cli.scoring.inputs import check_tokens
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.evaluated import EvaluatedRows, check_read_for


@dataclass(frozen=True)
class LabelSetsReport:
    """The content of `deepthink eval --json` for rows with several labels: `results` by iteration, T = 1 included.

    `metric` is that of `judged`.
    """

    memory: OpenedMemory
    split: str
    results: dict[int, LabelSets]
    skipped: dict[str, int]
    seconds: float
    score: ScoreName = "sum"
    metric: str = MICRO_F1

    @property
    def judged(self) -> Judged:
        """The metric of the last iteration: what `--fail-under` compares."""
        return Judged.of(self.results, self.metric, self.last.n, NONE)

    @property
    def last(self) -> LabelSets:
        """The counts of the last iteration."""
        return self.results[max(self.results)]

    @property
    def optimistic(self) -> bool:
        """Whether the rows seem to be those that the thresholds were fitted on, by the name of their file."""
        stored = self.memory.provenance.thresholds
        return stored is not None and self.split.replace("\\", "/").rpartition("/")[2] == stored.source

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        stored = self.memory.provenance.thresholds
        return {
            "split": self.split,
            "skipped": self.skipped,
            **scored_by(self.score),
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
    memory: OpenedMemory,
    rows: EvaluatedRows,
    *,
    options: ModelOptions | None = None,
    observe: Callable[[Prediction], None] | None = None,
    score: ScoreName = "sum",
    skip: Callable[[Skipped], None] | None = None,
    truncate: Keep | None = None,
    tell: Tell = silent,
) -> LabelSetsReport:
    """Evaluate a memory on rows with several labels, next to plain in-context learning (T = 1).

    The arguments are those of `evaluate`. Raises InputError for rows or thresholds that do not fit the memory.
    """
    check_read_for(rows, memory)
    given, demonstrations = GivenLabels.of(memory.provenance, score, memory.name), memory.provenance.demonstrations
    tell_of_several(memory, tell)
    spec = find_its_model(memory, options, tell)
    if skip is None and truncate is None:
        check_tokens(demonstrations, spec, rows.source or rows.split, rows.checked, score)
    started = time.perf_counter()
    engine, stored = load_both(memory, spec, tell)
    memories, skipped = with_first_reading(engine, stored), Counter(rows.skipped)
    results = {each: LabelSets(demonstrations.labels) for each in sorted(memory.iteration for memory in memories)}
    scored = scored_rows(engine, [memories], rows, (), score, skip is not None, truncate, tell)
    for row in without_skipped(scored, rows, skipped, skip):
        true = demonstrations.template.labels_of(row.query.gold or "")
        results[row.iteration].add(frozenset(true), frozenset(given(row)))
        if observe is not None:
            observe(row)
    return LabelSetsReport(memory, rows.split, results, dict(skipped), time.perf_counter() - started, score)
