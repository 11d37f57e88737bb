"""Run jobs, with results in a folder that can be resumed: the workflow of `deepthink run`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import Problems
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.pools.store import Store
from deepthink_cli.runs.folder import RunFolder, found_in, open_run_folder
from deepthink_cli.runs.jobs import PendingJobs, RunJob, prepare_jobs
from deepthink_cli.runs.plan import RunPlan, settings
from deepthink_cli.runs.request import RunRequest
from deepthink_cli.runs.results import Setting
from deepthink_cli.runs.runner import Work, run_jobs, together
from deepthink_cli.runs.same_data import check_continues, unchecked
from deepthink_cli.runs.samples import write_samples
from deepthink_cli.runs.texts import write_texts
from deepthink_cli.techniques.registry import DEEP_THINKING
from deepthink_cli.updates.gate import grid_text, grid_values
from deepthink_cli.updates.registry import GATE
from deepthink_cli.updates.texts import rule_text
from deepthink_cli.workflows.events import Note, Progress, RunObserver, Tell, Warn, silent
from deepthink_cli.workflows.extended_labels import ExtendedLabels
from deepthink_cli.workflows.inputs import scored_by
from deepthink_cli.workflows.models import describe_engine, find_model, load, warn_without_chat
from deepthink_cli.workflows.task_rows import announce


@dataclass(frozen=True)
class PreparedRun:
    """A run that has passed every check that does not need the weights.

    The demonstrations of its `jobs` are known; a method chooses those of `pending` jobs once the model is loaded.
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

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        work, plan = self.settings(), self.plan
        inputs = sum(job.scorings(plan, wanted) for job, wanted in work)
        return {
            "model": self.spec.id,
            "out": str(self.out),
            "tasks": [task.name for task in self.plan.tasks],
            "seeds": list(self.plan.seeds),
            **grid_values(self.plan.gates),
            "iterations": self.plan.iterations,
            "scored_iterations": list(self.plan.scored),
            **self._crossed(),
            **scored_by(plan.score),
            "jobs": len(self.jobs) + len(self.pending) * len(plan.techniques),
            "rows": sum(len(wanted) for _, wanted in work) + sum(each.rows(plan) for each in self.pending),
            "inputs_to_score": inputs + sum(each.scorings(plan) for each in self.pending),
        }

    def _crossed(self) -> dict[str, list[str]]:
        """What the run crosses T and eta with, where it names any."""
        plan = self.plan
        crossed = {
            "demos_by": list(plan.demos_by),
            "methods": list(plan.techniques),
            "calibrations": list(plan.calibrations),
            "updates": list(dict.fromkeys(rule_text(rule) or GATE for rule in plan.gates)),
        }
        plain = {"demos_by": [], "methods": [DEEP_THINKING], "calibrations": [NONE], "updates": [GATE]}
        return {name: values for name, values in crossed.items() if values != plain[name]}

    @property
    def gates(self) -> str:
        """The grid of gates as text."""
        return grid_text(self.plan.gates)


@dataclass(frozen=True)
class RunSummary:
    """The number of rows of the run, the rows written by this call, and the inputs scored for them."""

    out: str
    rows: int
    written: int
    inputs: int
    seconds: float


def prepare_request(request: RunRequest, out: Path, tell: Tell = silent) -> PreparedRun:
    """Find the model of a request, plan its run, and check every job; raises as `RunRequest.plan` and `prepare_run`."""
    spec = find_model(request.model, tell)
    return prepare_run(request.plan(), spec, out, tell)


def prepare_run(plan: RunPlan, spec: ModelSpec, out: Path, tell: Tell = silent) -> PreparedRun:
    """Read the tasks, and check every job and the rows in the folder, without loading the weights.

    Raises InputError with all mistakes of all tasks, and if the folder's rows come from other data.
    """
    warn_without_chat(spec, plan.chat, tell)
    announce(plan.source, plan.tasks, tell)
    problems, prepared = Problems(), list[RunJob | PendingJobs]()
    for number, task in enumerate(plan.tasks):
        tell(Progress("reading tasks", number, len(plan.tasks)))
        with problems.collected():
            prepared += prepare_jobs(plan, spec, task)
    tell(Progress("reading tasks", len(plan.tasks), len(plan.tasks)))
    problems.raise_any()
    jobs = [each for each in prepared if isinstance(each, RunJob)]
    pending = [each for each in prepared if isinstance(each, PendingJobs)]
    _tell_of_fewer(jobs, spec, tell)
    _warn_of_extended(plan, prepared, spec, tell)
    run = PreparedRun(plan, jobs, pending, spec, out)
    _check_folder(run, tell)
    return run


def _warn_of_extended(plan: RunPlan, prepared: Sequence[RunJob | PendingJobs], spec: ModelSpec, tell: Tell) -> None:
    """Warn once for each task of labels and candidates that raw scores never choose.

    Raises InputError for a score that needs an end of every label where none is written.
    """
    if plan.score == "mean":
        return
    tell = tell if NONE in plan.calibrations else silent
    for each in {each.task.name: each for each in reversed(prepared)}.values():
        prompt = each.demonstrations if isinstance(each, RunJob) else each.task.prompt
        extended = ExtendedLabels(spec.tokenizer, prompt, plan.score, tell, f"task {each.task.name}: ")
        query = next(iter(each.evaluated))
        extended.check_labels(query.text, each.task.labels or (str(query.gold),))
        extended.check_rows(() if each.task.labels else each.evaluated, ())


def _tell_of_fewer(jobs: Sequence[RunJob], spec: ModelSpec, tell: Tell) -> None:
    """Report jobs whose demonstrations do not all fit the model."""
    for job in jobs:
        asked, used = len(job.drawn.demonstrations.examples), len(job.demonstrations.examples)
        if used < asked:
            tell(Note(f"{job.label}: {used} of {asked} demonstrations fit {spec.id}"))


def execute(
    prepared: PreparedRun,
    samples: bool = False,
    observer: RunObserver | None = None,
    tell: Tell = silent,
    store: Store | None = None,
) -> RunSummary:
    """Load the model and write every missing row into the folder; all writes are crash-safe.

    With `samples`, every input's scores are written as well. What methods read of pools is cached in `store`. Raises
    InputError if another process writes the same run.
    """
    with open_run_folder(prepared.out) as folder:
        engine = load(prepared.spec, tell)
        describe_engine(engine, tell, always=True)
        jobs = [*prepared.jobs, *_chosen(prepared, engine, store, tell)]
        asked = [(job, settings(prepared.plan, job, engine.identity)) for job in jobs]
        work = _missing(asked, engine, folder)
        rows = sum(len(of_job) for _, of_job in asked)
        left = sum(len(wanted) for _, wanted in work)
        if left < rows:
            tell(Note(f"{prepared.out}: {rows - left} of {rows} rows are there already"))
        started = time.perf_counter()
        try:
            inputs = _score(prepared.plan, work, engine, folder, samples, observer or RunObserver())
        except KeyboardInterrupt:
            kept = len(folder.done)
            tell(Note(f"{prepared.out}: {kept} rows are kept; the same command continues the run"))
            raise
    return RunSummary(str(prepared.out), rows, left, inputs, time.perf_counter() - started)


def _chosen(prepared: PreparedRun, engine: Engine, store: Store | None, tell: Tell) -> list[RunJob]:
    """The jobs whose demonstrations are chosen now: once for each task, seed and method."""
    plan, jobs = prepared.plan, list[RunJob]()
    for number, pending in enumerate(prepared.pending):
        tell(Progress("choosing demonstrations", number, len(prepared.pending), {"method": pending.request.method}))
        jobs += pending.jobs(plan, prepared.spec, engine, store)
    if prepared.pending:
        tell(Progress("choosing demonstrations", len(prepared.pending), len(prepared.pending), {"method": ""}))
    _tell_of_fewer(jobs, prepared.spec, tell)
    return jobs


def _check_folder(prepared: PreparedRun, tell: Tell) -> None:
    """Raise InputError if the folder's rows come from other data; warns if that cannot be checked."""
    rows = found_in(prepared.out)
    if not rows:
        return
    planned = [setting for _, settings in prepared.settings() for setting in settings]
    check_continues(rows, planned)
    if count := unchecked(rows, planned):
        text = (
            f"{prepared.out}: {count} rows were written by an older version, without a digest of the evaluated rows; "
            "whether the evaluated rows have changed since could not be checked"
        )
        tell(Warn(text))


def _missing(asked: Work, engine: Engine, folder: RunFolder) -> Work:
    """Every job with those of its settings whose rows are missing."""
    for job, _ in asked:
        for member in job.members:
            engine.check_ids(member.token_ids, f"task {job.label}: demonstrations")
    # Checked again: downloaded weights now have a digest, and another process may have written rows.
    check_continues(folder.found, [setting for _, of_job in asked for setting in of_job])
    return [(job, [setting for setting in of_job if not folder.has(setting)]) for job, of_job in asked]


def _score(plan: RunPlan, work: Work, engine: Engine, folder: RunFolder, samples: bool, observer: RunObserver) -> int:
    """Score the missing rows; return the number of inputs scored."""
    inputs = 0
    observer.begin(plan, work)
    try:
        for jobs in together(plan, engine, work):
            unfinished = [job for job, wanted in jobs if wanted]
            if not unfinished:
                continue
            observer.start(unfinished)
            for step in run_jobs(plan, engine, jobs):
                inputs += step.scored
                observer.scored(step.job, step.scored)
                if step.row is not None:
                    if samples:
                        write_samples(folder.folder, step.row, step.predictions)
                        write_texts(folder.folder, str(step.row.setting.rows_sha256), step.predictions)
                    folder.append(step.row)
                    observer.row(step.job, step.row)
            observer.finish(unfinished)
    finally:
        observer.end()
    return inputs
