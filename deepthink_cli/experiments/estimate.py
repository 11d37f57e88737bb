"""What runs take: rows, inputs, tokens, and the time by a short probe; nothing is downloaded or written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import load
from deepthink_cli.errors import option
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.jobs import Job, Prepared, known, pending
from deepthink_cli.experiments.prepare import prepare_jobs
from deepthink_cli.experiments.results import Setting, grouped
from deepthink_cli.generation import answered
from deepthink_cli.method import Method
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, predictions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.probe import probe
from deepthink_cli.tasks.files import example_query
from deepthink_cli.tasks.format import Task

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

_CHARACTERS = 4  # of English text in a token, about
_TRAINING = 3  # passes forward that a gradient step costs
_ANSWERS = 8  # answers that are generated to time one


@dataclass(frozen=True)
class Estimate:
    """What the missing `rows` of runs take, beside those that are `written`; `tokens` are about those that are read.

    With a `reason`, `seconds`, `loading` the model included, are unknown; so are inputs and tokens if the model or its
    data are not here.
    """

    rows: int
    written: int
    inputs: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    loading: float = 0.0
    reason: str | None = None


def estimate_runs(jobs: Sequence[Prepared], out: Path, may_load: bool = True, tell: Tell = silent) -> Estimate:
    """Load the model that the jobs share, and time readings and scored inputs of the task with the most inputs.

    Demonstrations that a method would choose are stood in for by drawn ones, and choosing them is not timed. Answers
    that are written are timed apart from labels.
    """
    missing = list(_missing(jobs, out))
    rows, inputs = sum(len(wanted) for _, wanted in missing), sum(job.scorings(wanted) for job, wanted in missing)
    tokens = sum(tokens_read(job, wanted) + tokens_scored(job, wanted) for job, wanted in missing)
    found = Estimate(rows, sum(job.rows for job in jobs) - rows, inputs, round(tokens))
    if not rows:
        return replace(found, seconds=0.0)
    if not may_load:
        return replace(found, reason=option("no_probe"))
    if not jobs[0].run.spec.local_weights():
        return replace(found, reason="the weights are not on this machine, and a dry run downloads nothing")
    started = time.perf_counter()
    engine = load(jobs[0].run.spec, tell)
    loading, seconds = time.perf_counter() - started, 0.0
    for of_kind in grouped(missing, lambda each: each[0].task.free is None).values():
        largest, _ = max(of_kind, key=lambda each: each[0].scorings(each[1]))
        tell(Progress("timing", 0, 1, {"task": largest.task.name}))
        reading, scoring = measure(engine, largest)
        seconds += sum(reading * tokens_read(*each) + scoring * tokens_scored(*each) for each in of_kind)
    tell(Progress("timing", 1, 1, {"task": ""}))
    return replace(found, seconds=loading + seconds, loading=loading)


def _missing(jobs: Sequence[Prepared], out: Path) -> Iterator[tuple[Job, list[Setting]]]:
    """The jobs with their settings that have no row yet; drawn demonstrations stand in for those to be chosen."""
    done = {row.key for row in found_in(out)}
    for run, of_run in grouped(jobs, lambda job: job.run).items():
        identity = run.spec.identify()
        for job in known(of_run):
            if missing := [setting for setting in job.settings(identity) if setting.key not in done]:
                yield job, missing
        if pending(of_run):
            drawn = replace(run, options=run.options.model_copy(update={"demos_by": ()}))
            drawn_jobs = known(job for task in run.tasks for job in prepare_jobs(drawn, task, {}))
            yield from [(job, job.settings(identity)) for job in drawn_jobs] * len(run.options.demos_by)


def tokens_read(job: Job, wanted: Sequence[Setting]) -> int:
    """The tokens of all readings of a job; a step of training counts as several readings."""
    once = sum(len(member.token_ids) for member in job.members)
    if job.tuning is not None:
        return once * (1 + _TRAINING * job.tuning.steps)
    return once * (1 + (max(setting.iteration for setting in wanted) - 1) * len(job.run.options.rules))


def length_of(task: Task) -> float:
    """About the tokens of one scored input with all candidates, by the task's example."""
    query = example_query(task, task.name)
    return (len(task.prompt.query(query.text)) + sum(map(len, query.candidates))) / _CHARACTERS


def tokens_scored(job: Job, wanted: Sequence[Setting]) -> float:
    """About the tokens of the inputs that a job scores."""
    return job.scorings(wanted) * length_of(job.task)


def measure(engine: Engine, job: Job) -> tuple[float, float]:
    """Seconds for a token that is read and for one that is scored, by two readings of a job and some of its inputs."""
    options, read = job.run.options, job.demonstrations
    method = Method(min(2, options.iterations), options.rules[0], options.positions[0])
    from deepthink_cli.thinking import think

    started = time.perf_counter()
    *_, memory = think(engine, read, method)
    reading = (time.perf_counter() - started) / (method.iterations * len(read.token_ids))
    return reading, _scoring(engine, job, memory) / length_of(job.task)


def _scoring(engine: Engine, job: Job, memory: Memory) -> float:
    """Seconds to tokenise and score an input, or to write an answer."""
    scoring, queries = job.run.options.scoring, job.queries("test")
    if job.task.free is not None:
        started, sample = time.perf_counter(), list(islice(queries, _ANSWERS))
        list(answered(engine, [memory], job.task.free, sample, scoring))
        return (time.perf_counter() - started) / len(sample)

    def label(sample: Iterable[Query | Skipped]) -> Iterator[Prediction | Skipped]:
        parts = predictions(engine, [[memory]], sample, size=EVALUATED, scoring=scoring, skip=UNSCORABLE)
        return chain.from_iterable(parts)

    count = len(job.evaluated)
    return probe(engine, job.demonstrations, queries, count, label, scoring=scoring, skip=UNSCORABLE).seconds / count
