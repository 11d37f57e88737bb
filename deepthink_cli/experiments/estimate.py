"""Estimate the time of a run by a timed probe: the workflow of `deepthink run --dry-run`."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import load
from deepthink_cli.errors import option
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.experiments.folder import RunFolder
from deepthink_cli.experiments.jobs import RunJob, prepare_jobs
from deepthink_cli.experiments.plan import settings
from deepthink_cli.experiments.prepare import PreparedRun
from deepthink_cli.experiments.results import FILE, Setting
from deepthink_cli.experiments.runner import Work
from deepthink_cli.experiments.timing import Rates, amount_of, measure

BUDGET = 30.0  # seconds after which no further task is timed


@dataclass(frozen=True)
class Estimate:
    """The seconds that the missing rows take, `loading` the model included; None, with a `reason`, if unknown.

    `probe` is how long the probe took. Of the `tasks` with missing rows, `timed` were timed; the others are taken to be
    like their mean. `rows` and `inputs` are missing; what exists already is subtracted.
    """

    seconds: float | None
    rows: int
    inputs: int
    loading: float = 0.0
    probe: float = 0.0
    timed: int = 0
    tasks: int = 0
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The estimate as JSON values, with its hours."""
        hours = None if self.seconds is None else round(self.seconds / 3600, 4)
        return {"hours": hours, **{name: _rounded(value) for name, value in asdict(self).items()}}


def estimate_runs(prepared: Sequence[PreparedRun], may_load: bool = True, tell: Tell = silent) -> Estimate:
    """Load the model that the runs share, and time readings and scored inputs of their own sizes; writes nothing.

    Demonstrations that a method would choose are stood in for by drawn ones, and choosing them is not timed.
    """
    spec, works = prepared[0].spec, list(map(_missing, prepared))
    rows = sum(len(wanted) for work in works for _, wanted in work)
    inputs = sum(
        job.scorings(run.plan, wanted) for run, work in zip(prepared, works, strict=True) for job, wanted in work
    )
    if not rows:
        return Estimate(0.0, 0, 0)
    if not may_load:
        return Estimate(None, rows, inputs, reason=option("no_probe"))
    if not spec.local_weights():
        return Estimate(
            None, rows, inputs, reason="the weights are not on this machine, and a dry run downloads nothing"
        )
    started = time.perf_counter()
    engine = load(spec, tell)
    loading = time.perf_counter() - started
    timed, seconds = _timed(prepared, works, engine, tell)
    probe = time.perf_counter() - started
    tasks = sum(len(_by_task(work)) for work in works)
    return Estimate(loading + seconds, rows, inputs, loading, probe, timed, tasks)


def _timed(prepared: Sequence[PreparedRun], works: Sequence[Work], engine: Engine, tell: Tell) -> tuple[int, float]:
    """How many tasks of the runs were timed, and the seconds of all; each run times its tasks by their size."""
    started, rates = time.perf_counter(), dict[tuple[int, str], Rates]()
    by_task = {(n, name): of_task for n, work in enumerate(works) for name, of_task in _by_task(work).items()}
    for (number, name), of_task in by_task.items():
        tell(Progress("timing", len(rates), len(by_task), {"task": name}))
        rates[number, name] = measure(prepared[number].plan, engine, of_task)
        if time.perf_counter() - started > BUDGET:
            break
    tell(Progress("timing", len(by_task), len(by_task), {"task": ""}))
    other = _mean(rates)
    return len(rates), sum(
        rates.get((number, job.task.name), other).seconds(amount_of(run.plan, job, wanted))
        for number, (run, work) in enumerate(zip(prepared, works, strict=True))
        for job, wanted in work
    )


def _missing(prepared: PreparedRun) -> Work:
    """The jobs with their settings that have no row yet, also those whose demonstrations are not chosen yet."""
    work = prepared.settings()
    if (prepared.out / FILE).is_file():
        folder = RunFolder(Path(prepared.out))
        work = [(job, [each for each in wanted if not folder.has(each)]) for job, wanted in work]
    return [(job, wanted) for job, wanted in [*work, *_stand_ins(prepared)] if wanted]


def _stand_ins(prepared: PreparedRun) -> list[tuple[RunJob, list[Setting]]]:
    """Jobs with drawn demonstrations, in place of those whose demonstrations a method chooses."""
    if not prepared.pending:
        return []
    drawn, identity = (
        replace(prepared.plan, options=prepared.plan.options.model_copy(update={"demos_by": ()})),
        prepared.spec.identify(),
    )
    jobs = [job for task in drawn.tasks for job in prepare_jobs(drawn, prepared.spec, task)]
    known = [(job, settings(drawn, job, identity)) for job in jobs if isinstance(job, RunJob)]
    return known * len(prepared.plan.options.demos_by)


def _by_task(work: Work) -> dict[str, Work]:
    """The jobs of each task, the task with the most inputs to score first."""
    by_task: dict[str, list[tuple[RunJob, Any]]] = defaultdict(list)
    for job, wanted in work:
        by_task[job.task.name].append((job, wanted))
    size = {name: sum(len(job.evaluated) * len(wanted) for job, wanted in jobs) for name, jobs in by_task.items()}
    return dict(sorted(by_task.items(), key=lambda item: -size[item[0]]))


def _mean(rates: Mapping[tuple[int, str], Rates]) -> Rates:
    """The mean of each rate over the timed tasks."""
    names = [field.name for field in fields(Rates)]
    return Rates(**{name: statistics.fmean(getattr(each, name) for each in rates.values()) for name in names})


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
