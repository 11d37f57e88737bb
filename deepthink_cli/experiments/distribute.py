"""Do runs with workers: this process plans the units and writes the rows, and loads no weights."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from deepthink_cli.events import Detail, Note, Tell, Warn
from deepthink_cli.experiments.collect import Collector, RunSummary
from deepthink_cli.experiments.executors.base import Executor, other_version
from deepthink_cli.experiments.executors.messages import Done, Opened, RowsLabelled
from deepthink_cli.experiments.executors.scheduler import Scheduler
from deepthink_cli.experiments.here import by_model, tasks_of
from deepthink_cli.experiments.jobs import RunJob
from deepthink_cli.experiments.plan import RunPlan
from deepthink_cli.experiments.prepare import PreparedRun
from deepthink_cli.experiments.progress import JobsPlanned
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.same_data import check_continues
from deepthink_cli.experiments.shards import Share
from deepthink_cli.experiments.units import RunUnit, grouped_jobs, parts_of, unit_of_jobs, unit_of_pending
from deepthink_cli.model.options import ModelOptions


def distribute(
    runs: Sequence[PreparedRun], executor: Executor, collector: Collector, share: Share, tell: Tell
) -> RunSummary:
    """Write the missing rows of runs, made by workers; raises one error with a line for each unit that failed."""
    started = time.perf_counter()
    driver = Driver(runs, collector, share, executor.workers, tell)
    most = {
        model: sum(len(run.jobs) + len(tasks_of(run.pending)) for run in of_model)
        for model, of_model in driver.runs.items()
    }
    scheduler = Scheduler(executor, driver, most, collector.samples)
    scheduler.run()
    counts = scheduler.counts
    tell(
        Note(
            f"{executor.workers} workers: {counts.units} units done, models loaded {counts.loads} times, "
            f"{counts.replaced} workers replaced, {counts.retried} units tried again"
        )
    )
    if scheduler.failures:
        tell(Note(f"{runs[0].out}: {collector.folder.rows} rows are kept; the same command continues the run"))
    scheduler.raise_failures()
    seconds = time.perf_counter() - started
    return RunSummary(str(runs[0].out), driver.rows, collector.written, collector.inputs, seconds)


class Driver:
    """What the scheduler asks about the units of runs; see `Client` there."""

    def __init__(
        self, runs: Sequence[PreparedRun], collector: Collector, share: Share, workers: int, tell: Tell
    ) -> None:
        self.runs, self.collector, self.share, self.tell = by_model(runs), collector, share, tell
        self.workers = workers
        self.first: dict[ModelOptions, Opened] = {}
        self.rows = 0

    def units(self, model: ModelOptions, opened: Opened) -> deque[RunUnit]:
        """The units of a model with missing rows; raises InputError if rows of the folder come from other data."""
        units: dict[str, RunUnit] = {}  # two requests may have a unit in common
        for run in self.runs[model]:
            for unit in self._pending(run, opened) if run.pending else self._known(run, opened):
                units.setdefault(unit.digest, unit)
        return deque(units.values())

    def refusal(self, model: ModelOptions, opened: Opened) -> str | None:
        """Why a worker is refused: another version of the package, or another model than the others have."""
        if (reason := other_version(opened)) is not None:
            return reason
        known = self.first.get(model)
        if known is None:
            differing = self.runs[model][0].spec.identify().differences(opened.identity)
        else:
            ours, others = asdict(known.identity), asdict(opened.identity)
            differing = [name for name in ours if ours[name] != others[name]]
        if differing:
            return (
                f"{opened.host} has another {model.model} than {'the other workers' if known else 'this machine'}: its "
                f"{' and '.join(differing)} differs; give all machines the same files and options"
            )
        if known is None:
            self.first[model] = opened
            self._describe(opened)
        return None

    def happened(self, unit: RunUnit, event: Done) -> None:
        """Write a row, or show progress."""
        assert not isinstance(event, RowsLabelled)
        self.collector.happened(unit.digest, event)

    def missing(self, unit: RunUnit) -> RunUnit:
        """The unit without the rows that exist by now."""
        self.collector.interrupted(unit.digest)
        return replace(unit, done=unit.done | self.collector.folder.done)

    def warn(self, text: str) -> None:
        """Warn of a worker that died or was refused."""
        self.tell(Warn(text))

    def _describe(self, opened: Opened) -> None:
        identity = opened.identity
        self.tell(Detail(f"loaded {identity.id}, {identity.dtype} on {opened.device} of {opened.host}"))
        if opened.warning is not None:
            self.tell(Warn(opened.warning))
        else:
            self.tell(Note(opened.notice or opened.description))

    def _known(self, run: PreparedRun, opened: Opened) -> Iterator[RunUnit]:
        """The units of jobs whose demonstrations are known, the longest first, so that workers end together."""
        plan, folder = run.plan, self.collector.folder
        rows, jobs, inputs = 0, 0, 0
        units: list[tuple[float, RunUnit]] = []
        groups = grouped_jobs(plan, run.jobs, opened.identity, opened.most)
        for number, part in parts_of(groups, self.share.of * self.workers):
            unit = unit_of_jobs(plan.options, groups[number], part, folder.done)
            group = [groups[number][place] for place in part]
            if not self.share.takes(unit.digest, sum(len(wanted) for _, _, wanted in group)):
                continue
            rows += sum(len(wanted) for _, _, wanted in group)
            check_continues(folder.found, [setting for _, _, wanted in group for setting in wanted])
            missing = [(job, [each for each in wanted if not folder.has(each)]) for _, job, wanted in group]
            jobs += sum(bool(wanted) for _, wanted in missing)
            inputs += sum(job.scorings(plan, wanted) for job, wanted in missing)
            if any(wanted for _, wanted in missing):
                units.append((sum(_tokens(job, plan, wanted) for job, wanted in missing), unit))
        self.rows += rows
        self.tell(JobsPlanned(jobs, inputs))
        yield from (unit for _, unit in sorted(units, key=lambda entry: -entry[0]))

    def _pending(self, run: PreparedRun, opened: Opened) -> Iterator[RunUnit]:
        """The units of tasks whose demonstrations are chosen by the workers."""
        plan = run.plan
        for pending in tasks_of(run.pending):
            unit = unit_of_pending(plan, pending, opened.identity, self.collector.folder.done)
            rows = sum(each.rows(plan) for each in pending)
            if self.share.takes(unit.digest, rows):
                self.rows += rows
                jobs = len(pending) * len(plan.options.techniques)
                self.tell(JobsPlanned(jobs, sum(each.scorings(plan) for each in pending)))
                yield unit


def _tokens(job: RunJob, plan: RunPlan, wanted: Sequence[Setting]) -> float:
    """About the tokens of the inputs to score, if they are as long as the demonstrations are on average."""
    return job.scorings(plan, wanted) * len(job.demonstrations.token_ids) / len(job.demonstrations.examples)
