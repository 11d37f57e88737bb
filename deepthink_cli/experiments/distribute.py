"""Do runs with workers: this process plans the units and writes the rows, and loads no weights."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, replace

from deepthink_cli.engine.opening import describe_engine
from deepthink_cli.events import Note, Tell
from deepthink_cli.experiments.collect import Collector, RunSummary
from deepthink_cli.experiments.executors.base import Executor, other_version
from deepthink_cli.experiments.executors.messages import Done, Opened, RowsLabelled
from deepthink_cli.experiments.executors.scheduler import Scheduler
from deepthink_cli.experiments.jobs import Job, PendingJobs, Prepared, known, of_models, of_runs, pending
from deepthink_cli.experiments.progress import JobsPlanned
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.shards import Share
from deepthink_cli.experiments.units import Planner, RunUnit, tasks_of
from deepthink_cli.model.options import ModelOptions


def distribute(
    jobs: Sequence[Prepared], executor: Executor, collector: Collector, share: Share, tell: Tell
) -> RunSummary:
    """Write the missing rows of runs, made by workers; raises one error with a line for each unit that failed."""
    started, out = time.perf_counter(), str(collector.folder.folder)
    client = RunClient(jobs, collector, Planner(collector.folder, share, share.of * executor.workers, tell))
    most = {model: len(known(of_model)) + len(tasks_of(pending(of_model))) for model, of_model in client.jobs.items()}
    scheduler = Scheduler(executor, client, most, tell, collector.samples)
    scheduler.run()
    counts = scheduler.counts
    tell(
        Note(
            f"{executor.workers} workers: {counts.units} units done, models loaded {counts.loads} times, "
            f"{counts.replaced} workers replaced, {counts.retried} units tried again"
        )
    )
    if scheduler.failures:
        tell(Note(f"{out}: {collector.folder.rows} rows are kept; the same command continues the run"))
    scheduler.raise_failures()
    seconds = time.perf_counter() - started
    return RunSummary(out, client.planner.rows, collector.written, collector.inputs, seconds)


class RunClient:
    """What the scheduler asks about the units of runs; see `Client` there."""

    def __init__(self, jobs: Sequence[Prepared], collector: Collector, planner: Planner) -> None:
        self.jobs, self.collector, self.planner, self.tell = of_models(jobs), collector, planner, planner.tell
        self.first: dict[ModelOptions, Opened] = {}

    def units(self, model: ModelOptions, opened: Opened) -> deque[RunUnit]:
        """The units of a model with missing rows; raises InputError if rows of the folder come from other data."""
        units: dict[str, RunUnit] = {}  # two requests may have a unit in common
        for of_run in of_runs(self.jobs[model]).values():
            to_choose = pending(of_run)
            for unit in self._pending(to_choose, opened) if to_choose else self._known(known(of_run), opened):
                units.setdefault(unit.digest, unit)
        return deque(units.values())

    def refusal(self, model: ModelOptions, opened: Opened) -> str | None:
        """Why a worker is refused: another version of the package, or another model than the others have."""
        if (reason := other_version(opened)) is not None:
            return reason
        first = self.first.get(model)
        if first is None:
            differing = self.jobs[model][0].run.spec.identify().differences(opened.identity)
        else:
            ours, others = asdict(first.identity), asdict(opened.identity)
            differing = [name for name in ours if ours[name] != others[name]]
        if differing:
            return (
                f"{opened.host} has another {model.model} than {'the other workers' if first else 'this machine'}: its "
                f"{' and '.join(differing)} differs; give all machines the same files and options"
            )
        if first is None:
            self.first[model] = opened
            describe_engine(opened, self.tell, always=True)
        return None

    def happened(self, unit: RunUnit, event: Done) -> None:
        """Write a row, or show progress."""
        assert not isinstance(event, RowsLabelled)
        self.collector.happened(unit.digest, event)

    def missing(self, unit: RunUnit) -> RunUnit:
        """The unit without the rows that exist by now."""
        self.collector.interrupted(unit.digest)
        return replace(unit, done=unit.done | self.collector.folder.done)

    def _known(self, jobs: Sequence[Job], opened: Opened) -> list[RunUnit]:
        """The units of jobs whose demonstrations are known, the longest first, so that workers end together."""
        found = self.planner.known(jobs, opened.identity, opened.most)
        units = [(sum(map(_tokens, wanted, wanted.values())), unit) for unit, wanted in found if any(wanted.values())]
        return [unit for _, unit in sorted(units, key=lambda entry: -entry[0])]

    def _pending(self, jobs: Sequence[PendingJobs], opened: Opened) -> list[RunUnit]:
        """The units of tasks whose demonstrations are chosen by the workers."""
        units = list(self.planner.pending(jobs, opened.identity))
        mine = [each for each in jobs if each.task.name in {unit.task for unit in units}]
        self.planner.rows += sum(each.rows for each in mine)
        number = len(mine) * len(jobs[0].run.options.techniques)
        self.tell(JobsPlanned(number, sum(each.inputs for each in mine)))
        return units


def _tokens(job: Job, wanted: Sequence[Setting]) -> float:
    """About the tokens of the inputs to score, if they are as long as the demonstrations are on average."""
    return job.scorings(wanted) * len(job.demonstrations.token_ids) / len(job.demonstrations.examples)
