"""Do the runs of an experiment, in this process or with workers, with results in a folder that can be resumed."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import load
from deepthink_cli.events import Note, Progress, Tell, Warn, once, silent
from deepthink_cli.experiments.executors.base import (
    Done,
    Executor,
    InputsScored,
    JobEvent,
    JobsPlanned,
    Opened,
    RowMade,
    RowsLabelled,
    RunEnded,
    RunsPrepared,
    Subject,
    Unit,
)
from deepthink_cli.experiments.executors.handler import RunUnit
from deepthink_cli.experiments.executors.scheduler import Client, Scheduler
from deepthink_cli.experiments.folder import MANIFEST, RunFolder, Shard, open_run_folder
from deepthink_cli.experiments.jobs import Job, PendingJobs, Prepared, Run, known, pending
from deepthink_cli.experiments.results import Setting, check_same_data, grouped
from deepthink_cli.experiments.scorer import Wanted, max_tokens_together, missing_rows, together, work
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.cache import Store
from deepthink_cli.io.text import json_sha256
from deepthink_cli.provenance import ModelIdentity


@dataclass(frozen=True)
class RunSummary:
    """The number of rows of the run, the rows written by this call, and the inputs scored for them."""

    out: str
    rows: int
    written: int
    inputs: int
    seconds: float


class Collector:
    """Writes rows into a folder, and tells of the progress."""

    def __init__(self, folder: RunFolder, tell: Tell) -> None:
        self.folder, self.tell, self.tell_once = folder, tell, once(tell)
        self.inputs = 0

    def happened(self, event: JobEvent) -> None:
        """Note an event; raises as `RunFolder.write` does."""
        if not isinstance(event, RowMade) or self.folder.write(event.row, event.predictions, event.label):
            self.tell_once(event)
        if isinstance(event, InputsScored):
            self.inputs += event.inputs

    def groups(
        self, jobs: Sequence[Job], mine: Collection[Prepared], identity: ModelIdentity, most: int
    ) -> list[Wanted]:
        """The jobs of a run that are read together, `most` tokens in one pass, with the missing rows of `mine`.

        Tells of the rows that are there and of those that are missing. Raises InputError if rows of the folder come
        from other data.
        """
        planned = [setting for job in jobs if job in mine for setting in job.settings(identity)]
        check_same_data(self.folder.found, planned)
        groups = [missing_rows(group, mine, identity, self.folder.done) for group in together(jobs, most)]
        unfinished = [(job, settings) for group in groups for job, settings in group.items() if settings]
        there = len(planned) - sum(len(settings) for _, settings in unfinished)
        if there:
            self.tell(Note(f"{self.folder.folder}: {there} of {len(planned)} rows are there already"))
        self.tell(JobsPlanned(len(unfinished), sum(job.scorings(settings) for job, settings in unfinished)))
        return [group for group in groups if any(group.values())]


def execute(
    jobs: Sequence[Prepared],
    out: Path,
    samples: bool = False,
    tell: Tell = silent,
    store: Store | None = None,
    executor: Executor | None = None,
    shard: Shard | None = None,
) -> RunSummary:
    """Write every missing row of the jobs of runs into a folder; all writes are crash-safe.

    Without an `executor`, models are loaded in this process, each once. With a `shard`, only its part is done. With
    `samples`, every input's scores are written as well. What methods read of pools is cached in `store`. Raises
    InputError if another process writes the same run, and an error with a line for each unit that could not be done.
    """
    mine = list(jobs) if shard is None else part_of(jobs, shard)
    tell(RunsPrepared(list(dict.fromkeys(job.run for job in jobs)), out))
    with open_run_folder(out, samples) as folder:
        if shard is not None:
            (out / MANIFEST).unlink(missing_ok=True)  # the plan of an earlier run, until this one is done
        if folder.unsampled:
            text = f"{out}: the samples of {len(folder.unsampled)} rows are missing or damaged"
            tell(Warn(f"{text}; those of this command are made again"))
        collector = Collector(folder, tell)
        try:
            if executor is None:
                seconds = run_here(jobs, mine, collector, store)
            else:
                seconds = distribute(jobs, mine, collector, executor)
        except KeyboardInterrupt:
            tell(Note(f"{out}: {folder.rows} rows are kept; the same command continues the run"))
            raise
        finally:
            tell(RunEnded())
        if shard is not None:
            with writing(out / MANIFEST) as file:
                file.write(json.dumps({"plan": plan_digest(jobs)}) + "\n")
    return RunSummary(str(out), sum(job.rows for job in mine), folder.written, collector.inputs, seconds)


def part_of(jobs: Sequence[Prepared], shard: Shard) -> list[Prepared]:
    """The jobs of a shard: neighbours, with about as many inputs as those of the other shards.

    The jobs of one task whose demonstrations are chosen stay together: they are grouped only when they are chosen.
    """
    blocks = grouped(jobs, lambda job: (job.run, job.task.name) if isinstance(job, PendingJobs) else job).values()
    sizes = [sum(job.inputs for job in block) for block in blocks]
    middles = [after - size / 2 for after, size in zip(accumulate(sizes), sizes, strict=True)]
    parts = [int(middle * shard.of / sum(sizes)) for middle in middles]
    return [job for block, part in zip(blocks, parts, strict=True) if part == shard.number - 1 for job in block]


def plan_digest(jobs: Sequence[Prepared]) -> str:
    """The digest of the options, the models and the data of all jobs, wherever these are."""
    planned = [
        [
            run.options.model_dump(mode="json", exclude={"models", "tasks", "data_dir", "demos"}),
            run.spec.identify().contents_sha256,
            [job.data for job in of_run],
        ]
        for run, of_run in grouped(jobs, lambda job: job.run).items()
    ]
    return json_sha256(planned)[:16]


def run_here(jobs: Sequence[Prepared], mine: Sequence[Prepared], collector: Collector, store: Store | None) -> float:
    """Load each model and write the missing rows of its runs; the seconds without loading. Raises what a job raises."""
    seconds = 0.0
    for of_model in grouped(mine, lambda job: job.model).values():
        engine = load(of_model[0].run.spec, collector.tell)
        started = time.perf_counter()
        for run, of_run in grouped(of_model, lambda job: job.run).items():
            read, written = known(job for job in jobs if job.run is run), set(of_run)
            if to_choose := pending(of_run):
                read = _chosen(to_choose, engine, collector.tell, store)
                written = set(read)
            for wanted in collector.groups(read, written, engine.identity, max_tokens_together(engine)):
                for event in work(engine, wanted, collector.folder.samples):
                    collector.happened(event)
        seconds += time.perf_counter() - started
        del engine  # before the next model is loaded
    return seconds


def _chosen(jobs: Sequence[PendingJobs], engine: Engine, tell: Tell, store: Store | None) -> list[Job]:
    """The jobs whose demonstrations are chosen now: once for each task, seed and method."""
    chosen = list[Job]()
    for number, each in enumerate(jobs):
        tell(Progress("choosing demonstrations", number, len(jobs), {"method": each.choice.demos_by}))
        chosen += each.jobs(engine, store)
    tell(Progress("choosing demonstrations", len(jobs), len(jobs), {"method": ""}))
    return chosen


def distribute(jobs: Sequence[Prepared], mine: Sequence[Prepared], collector: Collector, executor: Executor) -> float:
    """Write the missing rows of runs, made by workers; the seconds that it took.

    Raises one error with a line for each unit that failed.
    """
    started, folder, tell = time.perf_counter(), collector.folder, collector.tell
    client = RunClient(jobs, mine, collector, executor.workers)
    most = {model: len(client.mine[model]) for model in client.mine}
    scheduler = Scheduler(executor, client, most, tell)
    for _ in scheduler.steps():
        pass
    counts = scheduler.counts
    tell(
        Note(
            f"{executor.workers} workers: {counts['units']} units done, models loaded {counts['loads']} times, "
            f"{counts['replaced']} workers replaced, {counts['retried']} units tried again"
        )
    )
    if scheduler.failures:
        tell(Note(f"{folder.folder}: {folder.rows} rows are kept; the same command continues the run"))
    scheduler.raise_failures()
    return time.perf_counter() - started


class RunClient(Client):
    """What the scheduler asks about the units of runs."""

    def __init__(self, jobs: Sequence[Prepared], mine: Sequence[Prepared], collector: Collector, workers: int) -> None:
        self.jobs, self.collector, self.workers = jobs, collector, workers
        self.mine: dict[Subject, list[Prepared]] = dict(grouped(mine, lambda job: job.model).items())
        self.done = frozenset[str]()

    def differences(self, subject: Subject, opened: Opened) -> list[str]:
        """The parts in which the first worker with a model has another one than this machine."""
        return self.mine[subject][0].run.spec.identify().differences(opened.identity)

    def units(self, subject: Subject, opened: Opened) -> deque[Unit]:
        """The units of a model with missing rows; raises InputError if rows of the folder come from other data."""
        units, self.done = deque[Unit](), frozenset(self.collector.folder.done)
        for run, mine in grouped(self.mine[subject], lambda job: job.run).items():
            if not (to_choose := pending(mine)):
                units += self._known(run, mine, opened)
                continue
            number, inputs = len(to_choose) * len(run.options.techniques), sum(each.inputs for each in to_choose)
            self.collector.tell(JobsPlanned(number, inputs))
            of_tasks = grouped(to_choose, lambda job: job.task.name)
            units += [self._unit(task, of_task) for task, of_task in of_tasks.items()]
        return units

    def happened(self, unit: Unit, event: Done) -> None:
        """Write a row, or show progress."""
        assert not isinstance(event, RowsLabelled)
        self.collector.happened(event)

    def missing(self, unit: Unit) -> Unit:
        """The unit without the rows that exist by now."""
        assert isinstance(unit, RunUnit)
        return replace(unit, done=frozenset(self.collector.folder.done))

    def _known(self, run: Run, mine: Sequence[Prepared], opened: Opened) -> list[RunUnit]:
        """The units of jobs whose demonstrations are known, the longest first, so that workers end together."""
        jobs = known(job for job in self.jobs if job.run is run)
        groups, units = self.collector.groups(jobs, set(mine), opened.identity, opened.most), []
        for wanted in groups:
            unfinished = [job for job, settings in wanted.items() if settings]
            parts = min(len(unfinished), -(-self.workers // len(groups)))
            for written in (unfinished[first::parts] for first in range(parts)):
                more = f" and {len(written) - 1} more" if len(written) > 1 else ""
                unit = self._unit(f"{written[0].label}{more}", list(wanted), written)
                units.append((sum(_tokens(job, wanted[job]) for job in written), unit))
        return [unit for _, unit in sorted(units, key=lambda entry: -entry[0])]

    def _unit(self, label: str, jobs: Sequence[Prepared], written: Sequence[Job] = ()) -> RunUnit:
        return RunUnit(jobs[0].model, label, jobs, written, self.done, self.collector.folder.samples)


def _tokens(job: Job, wanted: Sequence[Setting]) -> float:
    """About the tokens of the inputs to score, if they are as long as the demonstrations are on average."""
    return job.scorings(wanted) * len(job.demonstrations.token_ids) / len(job.demonstrations.examples)
