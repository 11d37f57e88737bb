"""What runs take: rows, inputs, tokens, and the time by a short probe; nothing is downloaded or written.

The time is that of the tokens that are read, the inputs that are scored and the training steps, each as in the probe.
Where the model or its data are not on this machine, the definitions of the tasks say how much there is to do.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import DeepThinkError, option
from deepthink_cli.events import Progress, Tell, once, silent
from deepthink_cli.experiments.axes import shown
from deepthink_cli.experiments.crossing import Crossing
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.jobs import Job, Prepared, known, of_runs, pending
from deepthink_cli.experiments.plan import (
    Run,
    given_to,
    planned,
    points,
    rows_of_job,
    run_tasks,
    scorings,
    source_of_run,
)
from deepthink_cli.experiments.prepare import SharedRows, prepare_jobs, prepare_run
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.runner import max_tokens_together, together
from deepthink_cli.generation.answers import answered
from deepthink_cli.io.hub import NotInCache
from deepthink_cli.method import Method
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, predictions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.probe import probe
from deepthink_cli.tasks.files import example_query
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import evaluation_set, protocol_name
from deepthink_cli.techniques.base import Trained
from deepthink_cli.techniques.together import COPIES, think_in_batches

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

BUDGET = 30.0  # seconds after which no further task is timed
_CHARACTERS = 4  # of English text in a token, about
_TRAINING = 3  # passes forward that a gradient step costs
_ANSWERS = 8  # answers that are generated to time one
Rates = tuple[float, float, float]  # seconds for each token that is read, input that is scored and training step
Asked = list[tuple[Job, list[Setting]]]  # jobs with the settings of their missing rows


@dataclass(frozen=True)
class Estimate:
    """What the missing `rows` of runs take, beside those that are `written`; `tokens` are about those that are read.

    `seconds`, `loading` the model included, are None, with a `reason`, if unknown. `probe` is how long the probe took.
    Of the `tasks`, `timed` were timed; the others are taken to be like their mean. `exact` is False if all was counted
    from the tasks' definitions.
    """

    rows: int
    written: int
    inputs: int
    tokens: int
    seconds: float | None = None
    loading: float = 0.0
    probe: float = 0.0
    timed: int = 0
    tasks: int = 0
    exact: bool = True
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The estimate as JSON values, with its hours."""
        rounded = {name: round(each, 3) if isinstance(each, float) else each for name, each in asdict(self).items()}
        return {"hours": None if self.seconds is None else round(self.seconds / 3600, 4), **rounded}


def plan_models(
    crossing: Crossing, out: Path, may_load: bool = True, tell: Tell = silent
) -> Iterator[tuple[str, int, Estimate]]:
    """The name, the number of runs and the estimate of every model; with `may_load`, models that are here are timed."""
    by_model: dict[str, list[Experiment]] = defaultdict(list)
    for run in crossing.runs:
        offline = run.models[0].model_copy(update={"offline": True})
        by_model[shown(run.models[0])].append(run.model_copy(update={"models": (offline,)}))
    tell = once(tell)
    for name, runs in by_model.items():
        what, shared = "model", SharedRows()
        try:
            spec = find_model(runs[0].models[0], tell)
            what = "data"
            jobs = [job for run in runs for job in prepare_run(planned(run, spec), out, tell, shared)]
        except NotInCache:
            estimate = _by_definition(runs, out, f"its {what} is not on this machine, and a plan downloads nothing")
        except DeepThinkError as error:
            estimate = _by_definition(runs, out, error.messages[0])
        else:
            shared.clear()
            estimate = estimate_runs(jobs, out, may_load, tell)
        yield name, len(runs), estimate


def _by_definition(runs: Sequence[Experiment], out: Path, reason: str) -> Estimate:
    """The estimate of a model that cannot be opened here, or whose data cannot be read."""
    for run in runs:
        given_to(run)  # raises for wrong demonstrations
    rows, inputs, tokens = amount_of(runs)
    written = min(rows, sum(row.setting.model == runs[0].models[0].model for row in found_in(out)))
    left = 1 - written / rows
    return Estimate(rows - written, written, round(inputs * left), round(tokens * left), exact=False, reason=reason)


def amount_of(runs: Iterable[Experiment]) -> tuple[int, int, float]:
    """Rows, inputs to score and tokens to read by the definitions of tasks, for which an example stands.

    Raises InputError for a task whose rows must be read to be counted, and cannot.
    """
    amounts = (_of_task(run, task) for run in runs for task in run_tasks(run.tasks))
    rows, inputs, tokens = zip(*amounts, strict=True)
    return sum(rows), sum(inputs), sum(tokens)


def _of_task(options: Experiment, task: Task) -> tuple[int, int, float]:
    demonstration, scored = lengths_of(task)
    (name,), limit = options.protocols, options.limit
    protocol = task.protocols[protocol_name(task, name)]
    known = protocol.sample or protocol.rows
    count = min(known, limit or known) if known else len(evaluation_set(task, name, source_of_run(options), limit))
    rows = inputs = 0
    read = 0.0
    for technique in options.chosen_techniques:
        passes = (1 + (options.scored[-1] - 1) * len(options.rules)) * technique.members
        if isinstance(technique, Trained):
            passes = 1 + _TRAINING * technique.steps
        rows += rows_of_job(options, technique)
        inputs += scorings(options, count, technique.members, points(options, technique))
        read += passes * (options.shots[0] or task.shots) * demonstration
    jobs = len(options.seeds) * max(1, len(options.demos_by))
    return jobs * rows, jobs * inputs, jobs * (read + inputs * scored)


def lengths_of(task: Task) -> tuple[float, float]:
    """The tokens of one demonstration and of one scored input with all candidates, by the task's example."""
    query = example_query(task, task.name)
    demonstration = task.prompt.demonstrations([(query.text, query.gold or query.candidates[0])])
    scored = len(task.prompt.query(query.text)) + sum(map(len, query.candidates))
    return len(demonstration) / _CHARACTERS, scored / _CHARACTERS


def estimate_runs(jobs: Sequence[Prepared], out: Path, may_load: bool = True, tell: Tell = silent) -> Estimate:
    """Load the model that the jobs share, and time readings and scored inputs of their own sizes.

    Demonstrations that a method would choose are stood in for by drawn ones, and choosing them is not timed.
    """
    by_task: dict[tuple[Run, str], Asked] = defaultdict(list)
    for job, wanted in _missing(jobs, out):
        by_task[job.run, job.task.name].append((job, wanted))
    repeated = {key: [_repeated(*each) for each in of_task] for key, of_task in by_task.items()}
    rows = sum(len(wanted) for of_task in by_task.values() for _, wanted in of_task)
    known = Estimate(
        rows,
        sum(job.rows for job in jobs) - rows,
        sum(inputs for work in repeated.values() for _, inputs, _ in work),
        round(sum(_tokens(by_task[key][0][0].task, *each) for key, work in repeated.items() for each in work)),
        tasks=len(by_task),
    )
    if not rows:
        return replace(known, seconds=0.0)
    if not may_load:
        return replace(known, reason=option("no_probe"))
    if not jobs[0].run.spec.local_weights():
        return replace(known, reason="the weights are not on this machine, and a dry run downloads nothing")
    started = time.perf_counter()
    engine = load(jobs[0].run.spec, tell)
    loading, rates = time.perf_counter() - started, dict[tuple[Run, str], Rates]()
    for key in sorted(by_task, key=lambda key: -sum(inputs for _, inputs, _ in repeated[key])):
        tell(Progress("timing", len(rates), len(by_task), {"task": key[1]}))
        rates[key] = measure(engine, [job for job, _ in by_task[key]])
        if time.perf_counter() - started - loading > BUDGET:
            break
    tell(Progress("timing", len(by_task), len(by_task), {"task": ""}))
    mean = [*map(fmean, zip(*rates.values(), strict=True))]
    seconds = loading + sum(
        rate * number
        for key, work in repeated.items()
        for each in work
        for rate, number in zip(rates.get(key, mean), each, strict=True)
    )
    probed = time.perf_counter() - started
    return replace(known, seconds=seconds, loading=loading, probe=probed, timed=len(rates))


def _missing(jobs: Sequence[Prepared], out: Path) -> Iterator[tuple[Job, list[Setting]]]:
    """The jobs with their settings that have no row yet; drawn demonstrations stand in for those to be chosen."""
    done = {row.key for row in found_in(out)}
    for run, of_run in of_runs(jobs).items():
        identity = run.spec.identify()
        for job in known(of_run):
            if missing := [setting for setting in job.settings(identity) if setting.key not in done]:
                yield job, missing
        if pending(of_run):
            drawn = replace(run, options=run.options.model_copy(update={"demos_by": ()}))
            drawn_jobs = known(job for task in run.tasks for job in prepare_jobs(drawn, task))
            for job in drawn_jobs * len(run.options.demos_by):
                yield job, job.settings(identity)


def _repeated(job: Job, wanted: Sequence[Setting]) -> tuple[int, int, int]:
    """The tokens that a job reads, the inputs that it scores and its training steps."""
    length, inputs = sum(len(member.token_ids) for member in job.members), job.scorings(wanted)
    if job.tuning is not None:
        return length, inputs, job.tuning.steps
    last = max(setting.iteration for setting in wanted)
    return length * (1 + (last - 1) * len(job.run.options.rules)), inputs, 0


def _tokens(task: Task, read: int, inputs: int, steps: int) -> float:
    return read * (1 + _TRAINING * steps) + inputs * lengths_of(task)[1]


def measure(engine: Engine, jobs: Sequence[Job]) -> Rates:
    """The rates of one task's jobs: the first of those that are read together, with two readings and some inputs."""
    group, options = next(iter(together(jobs, max_tokens_together(engine)))), jobs[0].run.options
    iterations = min(2, options.iterations)
    thoughts = [
        (member, Method(iterations, gate, jobs[0].run.positions))
        for job in group
        for gate in options.rules
        for member in job.members
    ]
    longest = max(len(member.token_ids) for member, _ in thoughts)
    thoughts = thoughts[: max(1, engine.tokens_held(COPIES) // longest)]
    first = sum(map(len, {member.token_ids for member, _ in thoughts}))  # gates share the first reading
    tokens = first + (iterations - 1) * sum(len(member.token_ids) for member, _ in thoughts)
    started = time.perf_counter()
    *_, memory = think_in_batches(engine, thoughts, lambda _, read: iter(read[:1]))
    reading = (time.perf_counter() - started) / tokens
    tuned = next((job for job in jobs if job.tuning is not None), None)
    return reading, _scoring(engine, group[0], memory), 0.0 if tuned is None else _step(engine, tuned)


def _scoring(engine: Engine, job: Job, memory: Memory) -> float:
    """Seconds to tokenise and score an input, or to write an answer."""
    scoring = job.run.options.scoring
    if job.task.free is not None:
        sample = list(job.queries("test"))[:_ANSWERS]
        started = time.perf_counter()
        for _ in answered(engine, [memory], job.task.free, sample, scoring):
            pass
        return (time.perf_counter() - started) / len(sample)

    def label(sample: Iterable[Query | Skipped]) -> Iterator[Prediction | Skipped]:
        return chain.from_iterable(
            predictions(engine, [[memory]], sample, size=EVALUATED, scoring=scoring, skip=UNSCORABLE)
        )

    queries, count = job.queries("test"), len(job.evaluated)
    return probe(engine, job.demonstrations, queries, count, label, scoring=scoring, skip=UNSCORABLE).seconds / count


def _step(engine: Engine, job: Job) -> float:
    """Seconds of a training step: the second one."""
    assert job.tuning is not None
    steps = iter(job.tuning.training(engine, job.demonstrations))
    next(steps)
    started = time.perf_counter()
    next(steps)
    return time.perf_counter() - started
