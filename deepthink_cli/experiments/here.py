"""Do runs in this process: models one after another, each loaded once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import describe_engine, load
from deepthink_cli.events import Note, Progress, Tell
from deepthink_cli.experiments.collect import Collector, RunSummary
from deepthink_cli.experiments.folder import RunFolder
from deepthink_cli.experiments.jobs import PendingJobs, RunJob
from deepthink_cli.experiments.plan import settings
from deepthink_cli.experiments.prepare import PreparedRun
from deepthink_cli.experiments.progress import JobsPlanned
from deepthink_cli.experiments.runner import Work, job_events, together
from deepthink_cli.experiments.same_data import check_continues
from deepthink_cli.experiments.shards import Share
from deepthink_cli.experiments.units import jobs_digest, part_digest, parts_of, pending_digest
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.store import Store


def run_here(
    runs: Sequence[PreparedRun], collector: Collector, share: Share, tell: Tell, store: Store | None
) -> RunSummary:
    """Load each model and write the missing rows of its runs; raises what a job raises."""
    rows, seconds = 0, 0.0
    for of_model in by_model(runs).values():
        engine = load(of_model[0].spec, tell)
        describe_engine(engine, tell, always=True)
        started = time.perf_counter()
        for run in of_model:
            rows += _run(run, engine, collector, share, tell, store)
        seconds += time.perf_counter() - started
        del engine  # before the next model is loaded
    return RunSummary(str(runs[0].out), rows, collector.written, collector.inputs, seconds)


def by_model(runs: Sequence[PreparedRun]) -> dict[ModelOptions, list[PreparedRun]]:
    """The runs of every model, in the order in which the models occur first."""
    groups: dict[ModelOptions, list[PreparedRun]] = {}
    for run in runs:
        groups.setdefault(run.spec.options, []).append(run)
    return groups


def _run(run: PreparedRun, engine: Engine, collector: Collector, share: Share, tell: Tell, store: Store | None) -> int:
    """Write the missing rows of a run; returns the number of all its rows."""
    groups = _groups(run, engine, share, tell, store)
    work = _missing(groups, engine, collector.folder)
    rows = sum(len(wanted) for group in groups for _, wanted in group)
    left = sum(len(wanted) for group in work for _, wanted in group)
    if left < rows:
        tell(Note(f"{run.out}: {rows - left} of {rows} rows are there already"))
    unfinished = [(job, wanted) for group in work for job, wanted in group if wanted]
    tell(JobsPlanned(len(unfinished), sum(job.scorings(run.plan, wanted) for job, wanted in unfinished)))
    for number, group in enumerate(work):
        for event in job_events(run.plan, engine, group, collector.samples):
            collector.happened(number, event)
    return rows


def _groups(run: PreparedRun, engine: Engine, share: Share, tell: Tell, store: Store | None) -> list[Work]:
    """The jobs that are read together, with all settings of their rows; those of this process's share."""
    plan, identity = run.plan, engine.identity
    chosen = _chosen(run, engine, share, tell, store)
    work = [(job, settings(plan, job, identity)) for job in [*run.jobs, *chosen]]
    groups = list(together(plan, engine, work))
    return groups if run.pending else list(_shared(groups, share))


def _shared(groups: Sequence[Work], share: Share) -> Iterator[Work]:
    """The groups of this process's share; jobs of others are read with them, and have no settings."""
    for number, part in parts_of(groups, share.of):
        group = groups[number]
        digest = part_digest(jobs_digest([wanted for _, wanted in group]), part)
        if share.takes(digest, sum(len(group[place][1]) for place in part)):
            yield [(job, wanted if place in part else []) for place, (job, wanted) in enumerate(group)]


def _chosen(run: PreparedRun, engine: Engine, share: Share, tell: Tell, store: Store | None) -> list[RunJob]:
    """The jobs whose demonstrations are chosen now: once for each task, seed and method."""
    plan, jobs = run.plan, list[RunJob]()
    pending = [
        each
        for of_task in tasks_of(run.pending)
        if share.takes(pending_digest(plan, of_task, engine.identity), sum(each.rows(plan) for each in of_task))
        for each in of_task
    ]
    for number, each in enumerate(pending):
        tell(Progress("choosing demonstrations", number, len(pending), {"method": each.request.method}))
        jobs += each.jobs(plan, run.spec, engine, store)
    if pending:
        tell(Progress("choosing demonstrations", len(pending), len(pending), {"method": ""}))
    return jobs


def tasks_of(pending: Sequence[PendingJobs]) -> list[list[PendingJobs]]:
    """Jobs to be chosen, by their tasks, which are neighbours."""
    return [list(of_task) for _, of_task in groupby(pending, key=lambda each: each.task.name)]


def _missing(groups: Sequence[Work], engine: Engine, folder: RunFolder) -> list[Work]:
    """Every job with those of its settings whose rows are missing."""
    asked = [each for group in groups for each in group]
    for job, _ in asked:
        for member in job.members:
            engine.check_ids(member.token_ids, f"task {job.label}: demonstrations")
    # Checked again: downloaded weights now have a digest, and another process may have written rows.
    check_continues(folder.found, [setting for _, of_job in asked for setting in of_job])
    return [[(job, [each for each in wanted if not folder.has(each)]) for job, wanted in group] for group in groups]
