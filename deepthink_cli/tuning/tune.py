"""Choose a method with labelled rows alone, by nested cross-validation: the work of `deepthink tune`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.format import Header, check_replaceable
from deepthink_cli.calibration.calibrator import calibrated_by_texts
from deepthink_cli.calibration.labelled import by_memory, calibrated_by_rows, observed
from deepthink_cli.calibration.registry import NONE, calibration
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import load
from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.events import Detail, Progress, Tell, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.provenance import Tuned
from deepthink_cli.registry import loaded
from deepthink_cli.scoring.pipeline import predicted, predictions
from deepthink_cli.scoring.prediction import Prediction, Scores, prediction_of
from deepthink_cli.tuning.held_out import TrainingSet, held_out_scores, memories_of, training_set, training_sets
from deepthink_cli.tuning.nested import (
    STATES,
    Comparison,
    Excess,
    best,
    choose_nested,
    correctness,
    excess,
    first_choice,
    unchosen,
)
from deepthink_cli.tuning.options import Setting
from deepthink_cli.tuning.plan import TunePlan
from deepthink_cli.tuning.rivals import RIVALS, Rival

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats
    from deepthink_cli.tuning.nested import Bools, HeldOutScores

TIMED = 32  # rows that are labelled to learn the time of a row


@dataclass(frozen=True)
class TuneReport:
    """The result of `deepthink tune`.

    `right` counts the held-out rows that each setting of the grid labels correctly, by cross-validation. `best` is the
    head, or else the simplest setting, within one standard error of the setting with the most. `chosen` are the
    settings of the nested cross-validation, one for each fold; `comparison` compares their labels with plain in-context
    learning. `costs` are seconds as in `Tried`. `rivals` are classifiers trained on the same rows. `excess` is the
    label that plain in-context learning gives to too many held-out rows. If a memory was written, `header` is its
    header, and `seconds_per_row` the time that labelling takes with it.
    """

    plan: TunePlan
    right: tuple[int, ...]
    best: int
    chosen: tuple[int, ...]
    comparison: Comparison
    costs: tuple[tuple[float, float], ...]
    seconds: float
    rivals: tuple[Rival, ...] = ()
    excess: Excess | None = None
    header: Header | None = None
    seconds_per_row: float | None = None

    @property
    def settings(self) -> list[Setting]:
        """All settings that were tried; the first is plain in-context learning."""
        return self.plan.grid.settings

    @property
    def kept(self) -> int:
        """The setting to use: the best, or if the difference may be noise, a setting that needs no choice."""
        return self.best if self.chosen_by_rows else unchosen(self.settings, self.excess, self.right)

    @property
    def chosen_by_rows(self) -> bool:
        """Whether the rows chose another setting than plain in-context learning, beyond noise."""
        return self.comparison.beyond_noise and self.best != 0

    @property
    def setting(self) -> Setting:
        """The setting to use."""
        return self.settings[self.kept]

    @property
    def stored(self) -> str | None:
        """The calibration of the setting to use, if the memory stores its correction: only for label words."""
        return self.setting.calibration if self.setting.calibration != NONE and self.plan.rows.pool.labels else None

    def labels_of(self, setting: Setting) -> int:
        """The number of labelled rows that a setting needs: its demonstrations, or all to fit a bias."""
        rows, shots = len(self.plan.rows), self.plan.options.shots
        fits = setting.calibration != NONE and calibration(setting.calibration).labelled
        return rows if shots is None or fits else shots

    def seconds_of(self, setting: Setting) -> float:
        """The seconds of a setting's readings and scores, over all folds; all its calibrations share them."""
        first, later = self.costs[setting.place[1]]
        return first + (setting.method.iterations - 1) * later

    @property
    def not_tried(self) -> list[str]:
        """The calibrations and readings that the budget left out, in words."""
        grid = self.plan.grid
        skipped = [f"calibration {name}" for name in grid.left_out]
        for technique, asked, tried in zip(grid.techniques, grid.asked, grid.readings or grid.asked, strict=True):
            if tried < asked:
                skipped.append(f"{technique.name}, T = {tried + 1}" + (f" to {asked}" if tried + 1 < asked else ""))
        return skipped

    @property
    def tuned(self) -> Tuned:
        """The record of the choice in the memory."""
        comparison = self.comparison
        return Tuned(
            folds=len(self.plan.folds),
            seed=self.plan.options.seed,
            rows=comparison.rows,
            tried=len(self.settings),
            accuracy=comparison.accuracy if self.chosen_by_rows else self.right[self.kept] / comparison.rows,
            baseline=comparison.baseline,
            calibration=self.setting.calibration,
        )

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values; `settings` are all that were tried, in their order."""
        return {
            "model": self.plan.spec.id,
            "rows": len(self.plan.rows),
            "labels": list(self.plan.rows.pool.labels),
            "folds": len(self.plan.folds),
            "seed": self.plan.options.seed,
            "settings": [self._cross_validated(number) for number in range(len(self.settings))],
            "best": self._cross_validated(self.best),
            "nested": {**self.comparison.as_json(), "chosen": [self.settings[n].as_json() for n in self.chosen]},
            "not_tried": self.not_tried,
            "difference_beyond_noise": self.chosen_by_rows,
            "excess": self.excess and asdict(self.excess),
            "choice": self.setting.as_json(),
            "rivals": [rival.as_json() for rival in self.rivals],
            "seconds": self.seconds,
            "seconds_per_row": self.seconds_per_row,
            "file": self.header and self.header.path,
        }

    def _cross_validated(self, number: int) -> dict[str, Any]:
        accuracy = self.right[number] / self.comparison.rows
        ci95 = wilson(accuracy, self.comparison.rows)
        setting = self.settings[number]
        cost = {"labelled_rows": self.labels_of(setting), "seconds": self.seconds_of(setting)}
        return {**setting.as_json(), **cost, "accuracy": accuracy, "ci95": ci95}


def tune(
    plan: TunePlan,
    output: str | Path | None = None,
    *,
    engine: Engine | None = None,
    store: Store | None = None,
    tell: Tell = silent,
) -> TuneReport:
    """Score the held-out rows with every setting, choose a setting, and estimate its accuracy on other rows.

    With an `output`, also writes the memory of all rows with the setting to use. `engine` is the model, if it is
    already loaded; `store` caches the readings of methods of selection; `tell` is called with every event. Raises
    InputError as `training_sets` does, and for an output that exists and is no memory.
    """
    if output is not None:
        check_replaceable(output)
    if engine is None:
        engine = load(plan.spec, tell)
    started = time.perf_counter()
    sets = training_sets(plan, engine, store, tell)
    rivals = [
        rival
        for each in RIVALS.values()
        for rival in loaded(each.judge)(plan, engine, each.own(plan.options.own), store, tell)
    ]
    budget = plan.options.seconds
    if budget is not None:  # a part is kept for the memory of all rows
        budget *= len(sets) / (1 + len(sets))
        budget -= time.perf_counter() - started
    tell(Detail(f"{len(sets)} sets of rows, without one or two of {len(plan.folds)} folds"))
    tried = held_out_scores(engine, plan.rows, sets, plan.grid, tell, budget)
    plan = replace(plan, grid=tried.grid)
    whole, without = _arranged(plan, sets, tried.scores)
    outer, inner = _judged(plan, whole, without)
    first = first_choice(plan.grid.settings)
    chosen, right = choose_nested(outer, inner, plan.folds, first)
    names, plainly = plan.rows.pool.labels, whole[NONE][plan.grid.settings[0].place].argmax(axis=-1)
    report = TuneReport(
        plan,
        tuple(int(count) for count in outer.sum(axis=1)),
        best(outer, first),
        chosen,
        Comparison.of(right.tolist(), outer[0].tolist()),
        tried.seconds,
        time.perf_counter() - started,
        tuple(rivals),
        excess([names[label] for label in plainly], [names[label] for label in plan.rows.gold]) if names else None,
    )
    if output is None:
        return report
    header, memory = _make_memory(engine, report, whole, store, output, tell)
    sample = plan.rows.queries[:TIMED]
    began = time.perf_counter()
    list(predictions(engine, [[memory]], sample, size=len(sample), scoring=plan.rows.scoring))
    return replace(report, header=header, seconds_per_row=(time.perf_counter() - began) / len(sample))


def _judged(plan: TunePlan, whole: HeldOutScores, without: Sequence[HeldOutScores]) -> tuple[Bools, list[Bools]]:
    """Whether every setting labels each row right (S, N), by the scores of `_arranged`; and the rows outside each fold.

    The bias for a fold is fitted on scores after memories that have not read the fold.
    """
    import numpy as np

    gold, groups, settings, inner = np.array(plan.rows.gold), plan.rows.groups, plan.grid.settings, []
    for fold, scores, rows in zip(plan.folds, without, _others(plan), strict=True):
        parts = [[rows.index(row) for row in other] for other in plan.folds if other != fold]
        inner.append(correctness(scores, gold[rows], settings, [groups[row] for row in rows], parts))
    return correctness(whole, gold, settings, groups, plan.folds, without), inner


def _others(plan: TunePlan) -> list[list[int]]:
    """For each fold, the rows outside it, in order."""
    return [[row for row in range(len(plan.rows)) if row not in fold] for fold in plan.folds]


def _arranged(
    plan: TunePlan, sets: Sequence[TrainingSet], scores: Sequence[Mapping[str, Floats]]
) -> tuple[HeldOutScores, list[HeldOutScores]]:
    """Scores (selections, techniques, methods, T, N, C) of all rows after memories without their fold; and by fold.

    The scores for fold i are of the rows outside it, in order, after memories without fold i and the row's own fold.
    """
    import numpy as np

    # First without a row's own fold only; then also without fold 0; also without fold 1; ...
    shape = (1 + len(plan.folds), len(plan.grid.selections))
    arranged = {
        name: np.full((*shape, *values.shape[:3], len(plan.rows), *values.shape[4:]), np.nan, values.dtype)
        for name, values in scores[0].items()
    }
    for each, of_set in zip(sets, scores, strict=True):
        for fold in each.held_out:
            (other,) = [1 + number for number in each.held_out if number != fold] or [0]
            rows = list(plan.folds[fold])
            columns = [each.rows.index(row) for row in rows]
            for name, values in of_set.items():
                arranged[name][other, each.selection][:, :, :, rows] = values[:, :, :, columns]
    inner: list[HeldOutScores] = [
        {name: values[1 + fold][:, :, :, :, rows] for name, values in arranged.items()}
        for fold, rows in enumerate(_others(plan))
    ]
    return {name: values[0] for name, values in arranged.items()}, inner


def _make_memory(
    engine: Engine, report: TuneReport, scores: HeldOutScores, store: Store | None, output: str | Path, tell: Tell
) -> tuple[Header, Memory]:
    """Think about all rows with the setting to use, and write the last memory, with the setting's correction, if any.

    A memory that has read a row knows its label. So a correction from rows is estimated from unread rows, or if the
    memory has read all, from the held-out `scores` (selections, techniques, methods, T, N, C).
    """
    from deepthink_cli.artifact.files import save_memory

    setting = report.setting
    whole = training_set(report.plan, (), setting.place[0], engine, store)
    first_and_last: list[Memory] = []
    demonstrations = whole.demonstrations[setting.place[1]]
    recorded = setting.technique.recorded(demonstrations.words)

    def keep(_: Sequence[int], memories: Sequence[Memory]) -> Iterator[int]:
        (memory,) = memories
        if memory.iteration in (1, setting.method.iterations):
            first_and_last.append(memory.recorded(tuned=report.tuned, selected=whole.selected, technique=recorded))
        yield memory.iteration

    for iteration in memories_of(engine, setting.technique, [(demonstrations, setting.method)], keep):
        tell(Progress("reading", iteration, setting.method.iterations))
    if report.stored is not None:
        rows, method = report.plan.rows, calibration(report.stored)
        unread = [rows.queries[row] for row in whole.unread]
        if not method.from_rows:
            correction = calibrated_by_texts(engine, first_and_last, method.name, rows.scoring)
        else:
            measured = [_held_out(engine, report, memory, scores) for memory in first_and_last if not unread]
            if unread:
                found = observed(engine, first_and_last, unread, rows.scoring, method.of_states)
                measured = by_memory(predicted(found))
            source = Path(rows.pool.name).name
            correction = calibrated_by_rows(method, measured, first_and_last, source, rows.scoring)
        first_and_last = [memory.recorded(calibrated=correction) for memory in first_and_last]
    return save_memory(first_and_last[-1], output), first_and_last[-1]


def _held_out(engine: Engine, report: TuneReport, memory: Memory, scores: HeldOutScores) -> list[Prediction]:
    """All rows at the iteration of the memory, by memories that have not read the row's fold.

    `scores` are the held-out scores (selections, techniques, methods, T, N, C).
    """
    rows, scoring, place = report.plan.rows.queries, report.plan.rows.scoring, report.setting.place
    tokenized = query_tokenizer(engine.tokenizer, memory.origin.demonstrations, scoring)(rows)
    place = (*place[:3], memory.iteration - 1)
    sums, states = scores[NONE][place], scores[STATES][place] if STATES in scores else [None] * len(rows)
    found = list[Prediction]()
    for row, query, compared, of_row in zip(rows, tokenized, sums.tolist(), states, strict=True):
        of_query = Scores.of(compared, query)
        if scoring.compared(of_query) != of_query:  # the compared values, which are no sums, stand for the means, too
            of_query = replace(of_query, means=of_query.sums)
        found.append(replace(prediction_of(row, memory.iteration, of_query), states=of_row))
    return found
