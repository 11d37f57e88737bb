"""Choose a method with labelled rows alone, by nested cross-validation: what `deepthink tune` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.files import save_memory
from deepthink_cli.artifact.format import Header
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.engine.base import Engine
from deepthink_cli.metrics import wilson
from deepthink_cli.provenance import Tuned
from deepthink_cli.thinking import think
from deepthink_cli.tuning.grid import Setting
from deepthink_cli.tuning.verdict import Comparison
from deepthink_cli.workflows.events import Detail, Progress, Tell, silent
from deepthink_cli.workflows.held_out import held_out_scores
from deepthink_cli.workflows.models import describe_engine, load
from deepthink_cli.workflows.tune_plan import TunePlan

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats
    from deepthink_cli.tuning.nested import HeldOutScores


@dataclass(frozen=True)
class TuneReport:
    """The result of `deepthink tune`.

    `right` counts the held-out rows that each setting of the grid labels correctly, by cross-validation; `best` is the
    setting with the most. `chosen` are the settings of the nested cross-validation, one for each fold, and `comparison`
    is that of their labels with plain in-context learning. `header` is that of the memory, if one was written.
    """

    plan: TunePlan
    right: tuple[int, ...]
    best: int
    chosen: tuple[int, ...]
    comparison: Comparison
    seconds: float
    header: Header | None = None

    @property
    def settings(self) -> list[Setting]:
        """All settings that were tried; the first is plain in-context learning."""
        return self.plan.grid.settings

    @property
    def kept(self) -> int:
        """The setting to use: the best, or plain in-context learning if the difference may be noise."""
        return self.best if self.comparison.beyond_noise else 0

    @property
    def setting(self) -> Setting:
        """The setting to use."""
        return self.settings[self.kept]

    @property
    def tuned(self) -> Tuned:
        """What the memory records of its choice."""
        comparison = self.comparison
        return Tuned(
            folds=len(self.plan.folds),
            seed=self.plan.options.seed,
            rows=comparison.rows,
            tried=len(self.settings),
            accuracy=comparison.accuracy if self.kept else comparison.baseline,
            baseline=comparison.baseline,
            calibration=self.setting.calibration,
        )

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values; `settings` are all that were tried, in their order."""
        return {
            "model": self.plan.spec.id,
            "rows": len(self.plan.rows),
            "labels": list(self.plan.rows.labels),
            "folds": len(self.plan.folds),
            "seed": self.plan.options.seed,
            "memories": len(self.plan.sets) * len(self.plan.grid.methods),
            "settings": [self._cross_validated(number) for number in range(len(self.settings))],
            "best": self._cross_validated(self.best),
            "nested": {**self.comparison.as_json(), "chosen": [self.settings[n].as_json() for n in self.chosen]},
            "difference_beyond_noise": self.kept != 0,
            "choice": self.setting.as_json(),
            "seconds": self.seconds,
            "file": self.header and self.header.path,
        }

    def _cross_validated(self, number: int) -> dict[str, Any]:
        accuracy = self.right[number] / self.comparison.rows
        ci95 = wilson(accuracy, self.comparison.rows)
        return {**self.settings[number].as_json(), "accuracy": accuracy, "ci95": ci95}


def tune(
    plan: TunePlan, output: str | Path | None = None, *, engine: Engine | None = None, tell: Tell = silent
) -> TuneReport:
    """Score the held-out rows with every setting, choose one, and estimate on other rows how good the choice is.

    With an `output`, also writes the memory of all rows with the setting to use. `engine` is the model, if it is
    already loaded; `tell` is called with every event.
    """
    from deepthink_cli.tuning.nested import best, choose_nested, correctness

    if engine is None:
        engine = load(plan.spec, tell)
        describe_engine(engine, tell)
    started, methods = time.perf_counter(), plan.grid.methods
    tell(
        Detail(f"{len(plan.sets) * len(methods)} memories of {len(plan.folds)} folds, {plan.grid.iterations} readings")
    )
    scores = held_out_scores(engine, plan.rows, plan.sets, methods, tell)
    outer_scores, inner_scores = _arranged(plan, scores)
    gold, settings = _gold(plan), plan.grid.settings
    outer = correctness(outer_scores, gold, settings)
    others = [[row for row in range(len(plan.rows)) if row not in fold] for fold in plan.folds]
    inner = [correctness(of_fold, gold[rows], settings) for of_fold, rows in zip(inner_scores, others, strict=True)]
    nested = choose_nested(outer, inner, plan.folds)
    comparison = Comparison.of(nested.right.tolist(), outer[0].tolist())
    right = tuple(int(count) for count in outer.sum(axis=1))
    report = TuneReport(plan, right, best(outer), nested.chosen, comparison, time.perf_counter() - started)
    return report if output is None else replace(report, header=_make_memory(engine, report, output, tell))


def _gold(plan: TunePlan) -> Any:
    import numpy as np

    return np.array(plan.rows.gold)


def _arranged(plan: TunePlan, scores: Sequence[Floats]) -> tuple[HeldOutScores, list[HeldOutScores]]:
    """Scores (selections, methods, T, N, C) of all rows after memories without their fold; and those for each fold.

    Those for fold i are of the rows outside it, in order, after memories without fold i and without their own fold.
    """
    import numpy as np

    methods, iterations, _, width = scores[0].shape
    shape = (1 + len(plan.folds), 1, methods, iterations, len(plan.rows), width)
    arranged = np.full(shape, np.nan)  # without one fold; without fold 0 and another; without fold 1 and another; ...
    for each, of_set in zip(plan.sets, scores, strict=True):
        for fold in each.held_out:
            (other,) = [1 + number for number in each.held_out if number != fold] or [0]
            rows = plan.folds[fold]
            places = [each.rows.index(row) for row in rows]
            arranged[other][0][:, :, list(rows)] = of_set[:, :, places]
    inside = [[row for row in range(len(plan.rows)) if row not in fold] for fold in plan.folds]
    inner: list[HeldOutScores] = [{NONE: part[..., rows, :]} for part, rows in zip(arranged[1:], inside, strict=True)]
    return {NONE: arranged[0]}, inner


def _make_memory(engine: Engine, report: TuneReport, output: str | Path, tell: Tell) -> Header:
    """Think about all rows with the setting to use, and write the last memory."""
    method = report.setting.method
    for memory in think(engine, report.plan.demonstrations, method):
        tell(Progress("reading", memory.iteration, method.iterations))
        if memory.iteration == method.iterations:
            assert memory.provenance is not None
            last = replace(memory, provenance=replace(memory.provenance, tuned=report.tuned))
    return save_memory(last, output)
