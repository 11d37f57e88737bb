"""Prepare the runs of an experiment: every check that does not need the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.calibration.extended_labels import ExtendedLabels, other_score
from deepthink_cli.calibration.notes import check_count
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import DeepThinkError, InputError, Problems
from deepthink_cli.events import Event, Note, Progress, Tell, Warn, silent
from deepthink_cli.experiments.axes import shown
from deepthink_cli.experiments.crossing import Crossing
from deepthink_cli.experiments.experiment import BETWEEN_RUNS, Experiment
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.jobs import PendingJobs, RunJob, SharedRows, prepare_jobs
from deepthink_cli.experiments.plan import RunPlan, planned, settings
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.same_data import check_continues
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.tasks.judges import tell_of_programs
from deepthink_cli.tasks.rows import announce
from deepthink_cli.techniques.registry import DEEP_THINKING
from deepthink_cli.updates.gate import grid_values
from deepthink_cli.updates.registry import GATE, rule_text


@dataclass(frozen=True)
class PreparedRun:
    """A run that has passed every check that does not need the weights.

    The demonstrations of its `jobs` are known; a method chooses those of `pending` jobs once the model is loaded.
    Workers plan the run again from the options of its `plan`.
    """

    plan: RunPlan
    jobs: Sequence[RunJob]
    pending: Sequence[PendingJobs]
    spec: ModelSpec
    out: Path

    def settings(self) -> list[tuple[RunJob, list[Setting]]]:
        """Every job whose demonstrations are known, with the settings of its rows."""
        identity = self.spec.identify()
        return [(job, settings(self.plan, job, identity)) for job in self.jobs]

    @property
    def rows(self) -> int:
        """The number of rows of the run."""
        return sum(len(wanted) for _, wanted in self.settings()) + sum(each.rows(self.plan) for each in self.pending)

    @property
    def inputs(self) -> int:
        """The number of inputs to score for all rows, without those of choices."""
        known = sum(job.scorings(self.plan, wanted) for job, wanted in self.settings())
        return known + sum(each.scorings(self.plan) for each in self.pending)


def described(experiment: Experiment, runs: Sequence[PreparedRun]) -> dict[str, Any]:
    """What the runs of an experiment with one model do, as JSON values."""
    first, rules = runs[0], experiment.rules
    crossed = {
        "demos_by": list(experiment.demos_by),
        "techniques": list(experiment.techniques),
        "calibrations": list(experiment.calibrations),
        "updates": list(dict.fromkeys(rule_text(rule) or GATE for rule in rules)),
    }
    plain = {"demos_by": [], "techniques": [DEEP_THINKING], "calibrations": [NONE], "updates": [GATE]}
    several = {name: list(values) for name, values in experiment.axes().items() if name in BETWEEN_RUNS}
    return {
        "model": first.spec.id,
        "out": str(first.out),
        "tasks": [task.name for task in first.plan.tasks],
        "seeds": list(experiment.seeds),
        **grid_values(rules),
        "iterations": experiment.iterations,
        "scored_iterations": list(experiment.scored),
        **{name: values for name, values in crossed.items() if values != plain[name]},
        **{name: values for name, values in several.items() if len(values) > 1},
        "scoring": str(experiment.scored_by),
        "jobs": sum(len(run.jobs) + len(run.pending) * len(experiment.techniques) for run in runs),
        "rows": sum(run.rows for run in runs),
        "inputs_to_score": sum(run.inputs for run in runs),
    }


def prepare(crossing: Crossing, out: Path, tell: Tell = silent) -> list[PreparedRun]:
    """The prepared runs of an experiment into one folder, those of a model together, with each model opened once.

    Raises InputError, with all mistakes of all runs, for models and data that cannot be read, and for two sets of rows
    with the same keys.
    """
    tell, problems, runs, shared = once(tell), Problems(), list[PreparedRun](), SharedRows()
    specs: dict[ModelOptions, ModelSpec | None] = {}
    given: DemonstrationSet | None = None
    for options in crossing.runs:
        (model,) = options.models
        if model not in specs:
            specs[model] = None
            with problems.collected():
                specs[model] = _find(crossing, model, tell)
        spec = specs[model]
        if spec is not None:
            with problems.collected():
                plan = planned(options, given)
                given = plan.demonstrations  # standard input can be read once
                runs.append(prepare_run(plan, spec, out, tell, shared))
    shared.clear()
    problems.raise_any()
    _check_keys(crossing, runs)
    return runs


def once(tell: Tell) -> Tell:
    """Passes on every event, but each note and warning only the first time."""
    passed: set[Event] = set()

    def tell_once(event: Event) -> None:
        if isinstance(event, Note | Warn):
            if event in passed:
                return
            passed.add(event)
        tell(event)

    return tell_once


def _find(crossing: Crossing, model: ModelOptions, tell: Tell) -> ModelSpec:
    """Open a model; raises InputError with its place in the study if there is one, also if it cannot be downloaded."""
    if crossing.opened is None:
        return find_model(model, tell)
    try:
        return find_model(model, tell)
    except DeepThinkError as error:
        number = crossing.opened.study.models.index(model)
        where = crossing.opened.where("models", number)
        raise InputError(*(f"{where}: models: {text}" for text in error.messages)) from error


def _check_keys(crossing: Crossing, runs: Sequence[PreparedRun]) -> None:
    """Raise InputError if two models of a study are the same, so that their rows would have the same keys."""
    if crossing.opened is None:  # with one model
        return
    first: dict[str, PreparedRun] = {}
    for run in runs:
        for _, of_job in run.settings():
            for setting in of_job:
                other = first.setdefault(setting.key, run)
                if other.spec.options != run.spec.options:  # runs of one model may share rows of a trained memory
                    names = [shown(each.spec.options) for each in (other, run)]
                    raise InputError(
                        f"{crossing.opened.where('models')}: models: {names[0]} and {names[1]} have the same rows (key "
                        f"{setting.key} of task {setting.task}); omit one"
                    )


def prepare_run(
    plan: RunPlan, spec: ModelSpec, out: Path, tell: Tell = silent, shared: SharedRows | None = None
) -> PreparedRun:
    """Read the tasks, and check every job and the rows in the folder, without loading the weights.

    Rows that are `shared` with other runs are not read again. Raises InputError with all mistakes of all tasks, and if
    the folder's rows come from other data.
    """
    announce(plan.source, plan.tasks, tell)
    problems, prepared = Problems(), list[RunJob | PendingJobs]()
    for number, task in enumerate(plan.tasks):
        tell(Progress("reading tasks", number, len(plan.tasks)))
        with problems.collected():
            prepared += prepare_jobs(plan, spec, task, shared)
    tell(Progress("reading tasks", len(plan.tasks), len(plan.tasks)))
    problems.raise_any()
    tell_of_programs(plan.tasks, tell)
    jobs = [each for each in prepared if isinstance(each, RunJob)]
    pending = [each for each in prepared if isinstance(each, PendingJobs)]
    for each in prepared:
        check_count(plan.options.calibrations, len(each.evaluated))
    _tell_of_fewer(jobs, spec, tell)
    _warn_of_extended(plan, prepared, spec, tell)
    run = PreparedRun(plan, jobs, pending, spec, out)
    _check_folder(run)
    return run


def _warn_of_extended(plan: RunPlan, prepared: Sequence[RunJob | PendingJobs], spec: ModelSpec, tell: Tell) -> None:
    """Warn once for each task of labels and candidates that raw scores never choose.

    Raises InputError for a score that needs an end of every label where none is written.
    """
    scoring = plan.options.scored_by
    if not scoring.prefers_short:
        return
    tell = tell if NONE in plan.options.calibrations else silent
    for each in {each.task.name: each for each in reversed(prepared) if each.task.free is None}.values():
        prompt = each.demonstrations if isinstance(each, RunJob) else each.task.prompt
        extended = ExtendedLabels(
            spec.tokenizer, prompt, scoring, tell, f"task {each.task.name}: ", other_score(scoring)
        )
        query = next(iter(each.evaluated))
        extended.check_labels(query.text, each.task.labels or (str(query.gold),))
        extended.check_rows(() if each.task.labels else each.evaluated, ())


def _check_folder(prepared: PreparedRun) -> None:
    """Raise InputError if the folder's rows come from other data."""
    if rows := found_in(prepared.out):  # otherwise no setting is asked for, which hashes the weights
        check_continues(rows, [setting for _, settings in prepared.settings() for setting in settings])


def _tell_of_fewer(jobs: Sequence[RunJob], spec: ModelSpec, tell: Tell) -> None:
    """Report demonstrations that are left out because they do not fit the model, once for all techniques."""
    for text in dict.fromkeys(job.fewer(spec.id) for job in jobs):
        if text is not None:
            tell(Note(text))
