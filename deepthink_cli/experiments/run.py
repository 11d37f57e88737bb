"""Do the runs of an experiment, in this process or with workers, with results in a folder that can be resumed."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import describe_engine, load
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Note, Progress, Tell, Warn, once, silent
from deepthink_cli.experiments.executors.base import (
    Done,
    Executor,
    JobEvent,
    Opened,
    RowMade,
    RowsLabelled,
    other_version,
)
from deepthink_cli.experiments.executors.scheduler import Scheduler
from deepthink_cli.experiments.folder import RunFolder, open_run_folder
from deepthink_cli.experiments.jobs import Job, PendingJobs, Prepared, known, of_models, of_runs, pending
from deepthink_cli.experiments.progress import (
    InputsScored,
    JobInfo,
    JobsPlanned,
    JobsStarted,
    RowWritten,
    RunEnded,
    RunsPrepared,
)
from deepthink_cli.experiments.results import Result, Setting
from deepthink_cli.experiments.samples import write_samples, write_texts
from deepthink_cli.experiments.scorer import check_ids, max_tokens_together, work
from deepthink_cli.experiments.shards import Shard, Share
from deepthink_cli.experiments.units import Planner, RunUnit, tasks_of
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.store import Store

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction


@dataclass(frozen=True)
class RunSummary:
    """The number of rows of the run, the rows written by this call, and the inputs scored for them."""

    out: str
    rows: int
    written: int
    inputs: int
    seconds: float


class Collector:
    """Writes rows into a folder, with the scores of every input if `samples`, and tells of the progress."""

    def __init__(self, folder: RunFolder, samples: bool, tell: Tell = silent) -> None:
        self.folder, self.samples, self.tell, self.tell_once = folder, samples, tell, once(tell)
        self.inputs = self.written = 0
        self.lines = {row.key: _digest(row) for row in folder.found}

    def happened(self, event: JobEvent) -> None:
        """Note an event; raises DeepThinkError if writing fails, and for a row that exists with other contents."""
        if isinstance(event, RowMade):
            self._write(event.job, event.row, event.predictions)
            return
        self.tell(event)
        if isinstance(event, InputsScored):
            self.inputs += event.inputs
        elif isinstance(event, JobsStarted):
            for text in dict.fromkeys(job.fewer for job in event.jobs):
                if text is not None:
                    self.tell_once(Note(text))

    def _write(self, job: JobInfo, row: Result, predictions: Sequence[Prediction]) -> None:
        folder, line = self.folder, _digest(row)
        if row.key in folder.unsampled:
            if folder.unsampled[row.key].correct != row.correct:
                raise DeepThinkError(
                    f"{folder.folder}: {job.label} (key {row.key}) has other labels now than in its row, so "
                    "its samples are not written; use the versions and the device of that run, or a new folder"
                )
            self._write_samples(row, predictions)
            folder.sampled(row)  # the row itself stays as it is
            self.tell(RowWritten(job, row))
            return
        if (known := self.lines.get(row.key)) is not None:
            if known != line:
                raise DeepThinkError(
                    f"{folder.folder}: two workers made different rows of {job.label} (key {row.key}); the first is "
                    "kept; check that all machines have the same versions and devices"
                )
            return
        if self.samples:
            self._write_samples(row, predictions)
        folder.append(row)
        self.lines[row.key] = line
        self.written += 1
        self.tell(RowWritten(job, row))

    def _write_samples(self, row: Result, predictions: Sequence[Prediction]) -> None:
        write_samples(self.folder.folder, row, predictions)
        write_texts(self.folder.folder, str(row.setting.rows_sha256), predictions)


def _digest(row: Result) -> bytes:
    return hashlib.blake2b(row.line().encode(), digest_size=16).digest()


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
    share = Share(shard)
    tell(RunsPrepared(list(of_runs(jobs)), out))
    with open_run_folder(out, samples) as folder:
        share.begin(out)
        if folder.unsampled:
            text = f"{out}: the samples of {len(folder.unsampled)} rows are missing or damaged"
            tell(Warn(f"{text}; those of this command are made again"))
        collector = Collector(folder, samples, tell)
        try:
            if executor is None:
                summary = run_here(jobs, collector, share, tell, store)
            else:
                summary = distribute(jobs, executor, collector, share, tell)
        except KeyboardInterrupt:
            tell(Note(f"{out}: {folder.rows} rows are kept; the same command continues the run"))
            raise
        finally:
            tell(RunEnded())
        share.end(out)
    return summary


def run_here(
    jobs: Sequence[Prepared], collector: Collector, share: Share, tell: Tell, store: Store | None
) -> RunSummary:
    """Load each model and write the missing rows of its runs; raises what a job raises."""
    planner, seconds = Planner(collector.folder, share, share.of, tell), 0.0
    for of_model in of_models(jobs).values():
        engine = load(of_model[0].run.spec, tell)
        describe_engine(engine, tell)
        started = time.perf_counter()
        for of_run in of_runs(of_model).values():
            _write(of_run, engine, planner, collector, store)
        seconds += time.perf_counter() - started
        del engine  # before the next model is loaded
    return RunSummary(str(collector.folder.folder), planner.rows, collector.written, collector.inputs, seconds)


def _write(
    jobs: Sequence[Prepared], engine: Engine, planner: Planner, collector: Collector, store: Store | None
) -> None:
    """Write the missing rows of a run."""
    to_choose, found = pending(jobs), known(jobs)
    if to_choose:
        tasks = {unit.task for unit in planner.pending(to_choose, engine.identity)}
        found = _chosen([each for each in to_choose if each.task.name in tasks], engine, planner.tell, store)
    units = planner.known(found, engine.identity, max_tokens_together(engine), is_mine=bool(to_choose))
    check_ids(engine, (job for _, wanted in units for job in wanted))
    for _, wanted in units:
        for event in work(engine, wanted, collector.samples):
            collector.happened(event)


def _chosen(jobs: Sequence[PendingJobs], engine: Engine, tell: Tell, store: Store | None) -> list[Job]:
    """The jobs whose demonstrations are chosen now: once for each task, seed and method."""
    chosen = list[Job]()
    for number, each in enumerate(jobs):
        tell(Progress("choosing demonstrations", number, len(jobs), {"method": each.request.method}))
        chosen += each.jobs(engine, store)
    if jobs:
        tell(Progress("choosing demonstrations", len(jobs), len(jobs), {"method": ""}))
    return chosen


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
            f"{executor.workers} workers: {counts['units']} units done, models loaded {counts['loads']} times, "
            f"{counts['replaced']} workers replaced, {counts['retried']} units tried again"
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
            describe_engine(opened, self.tell)
        return None

    def happened(self, unit: RunUnit, event: Done) -> None:
        """Write a row, or show progress."""
        assert not isinstance(event, RowsLabelled)
        self.collector.happened(event)

    def missing(self, unit: RunUnit) -> RunUnit:
        """The unit without the rows that exist by now."""
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
