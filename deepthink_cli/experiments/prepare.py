"""Prepare the runs of an experiment: every check that does not need the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

from deepthink_cli.calibration.calibrator import own_candidates
from deepthink_cli.calibration.notes import check_count
from deepthink_cli.calibration.registry import NONE, from_rows, of_labelled
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.events import Note, Progress, Tell, once, silent
from deepthink_cli.experiments.experiment import AXES, Experiment
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.jobs import Job, PendingJobs, Prepared, Run, jobs_after, known, pending, planned
from deepthink_cli.experiments.results import check_same_data
from deepthink_cli.experiments.samples import as_lines
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.scoring.extended_labels import check_labels, other_score
from deepthink_cli.selection.choice import check_choice
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.tasks.catalogue import digest
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.judges import check_may_run, judge_of, tell_of_programs
from deepthink_cli.tasks.rows import announce, check_held_out, pool_of_task
from deepthink_cli.tasks.splits import Drawn, EvaluationSet, draw_demonstrations, evaluation_set

# The evaluation sets of tasks, each made once for runs with the same protocol, source and limit.
SharedRows = dict[tuple[Any, ...], EvaluationSet]


def described(experiment: Experiment, jobs: Sequence[Prepared], out: Path) -> dict[str, Any]:
    """What the jobs of an experiment with one model do, as JSON values: its axes, and the options that were changed."""
    axes = {name: values for name in AXES if (values := getattr(experiment, name)) not in ((), (None,))}
    changed = experiment.model_dump(mode="json", exclude_defaults=True)
    return {
        **changed,
        **{name: list(values) for name, values in axes.items()},
        "models": [jobs[0].run.spec.id],
        "tasks": [task.name for task in jobs[0].run.tasks],
        "iterations": experiment.iterations,
        "at": list(experiment.scored),
        **({"scoring": str(experiment.scoring)} if "scoring" in changed else {}),
        "out": str(out),
        "jobs": len(known(jobs)) + len(pending(jobs)) * len(experiment.techniques),
        "rows": sum(job.rows for job in jobs),
        "inputs": sum(job.inputs for job in jobs),
    }


def prepare(
    runs: Sequence[Experiment],
    out: Path,
    tell: Tell = silent,
    find: Callable[[ModelOptions, Tell], ModelSpec] = find_model,
) -> list[Prepared]:
    """The jobs of runs into one folder, those of a run together, with each model opened once, as `find` does.

    Raises InputError, with all mistakes of all runs, for models and data that cannot be read.
    """
    tell, problems, jobs, shared = once(tell), Problems(), list[Prepared](), SharedRows()
    specs: dict[ModelOptions, ModelSpec | None] = {}
    given: DemonstrationSet | None = None
    for options in runs:
        (model,) = options.models
        if model not in specs:
            specs[model] = problems.tried(find, model, tell)
        spec = specs[model]
        if spec is not None:
            with problems.collected():
                run = planned(options, spec, given)
                given = run.demonstrations  # standard input can be read once
                jobs += prepare_run(run, out, tell, shared)
    for each in shared.values():
        each.pools.clear()  # training rows take the most memory, and are not needed any more
    problems.raise_any()
    return jobs


def prepare_run(run: Run, out: Path, tell: Tell, shared: SharedRows) -> list[Prepared]:
    """Read the tasks, and check every job and the rows in the folder, without loading the weights.

    Rows that are `shared` with other runs are not read again. Raises InputError with all mistakes of all tasks, and if
    the folder's rows come from other data.
    """
    announce(run.source, run.tasks, tell)
    problems, jobs = Problems(), list[Prepared]()
    for number, task in enumerate(run.tasks):
        tell(Progress("reading tasks", number, len(run.tasks)))
        with problems.collected():
            jobs += prepare_jobs(run, task, shared)
    tell(Progress("reading tasks", len(run.tasks), len(run.tasks)))
    problems.raise_any()
    tell_of_programs(run.tasks, tell)
    unlabelled = [name for name in run.options.calibrations if not of_labelled([name])]
    for job in jobs:
        check_count(unlabelled, len(job.evaluated))
    for text in dict.fromkeys(job.fewer for job in known(jobs)):  # once for all techniques
        if text is not None:
            tell(Note(text))
    _check_labels(run, jobs, tell)
    if rows := found_in(out):  # otherwise no setting is asked for, which hashes the weights
        identity = run.spec.identify()
        check_same_data(rows, [setting for job in known(jobs) for setting in job.settings(identity)])
    return jobs


def _check_labels(run: Run, jobs: Sequence[Prepared], tell: Tell) -> None:
    """Warn once for each task of labels that raw scores never choose.

    Raises InputError for a score that needs an end of every label where none is written.
    """
    scoring = run.options.scoring
    if not scoring.prefers_short:
        return
    tell, other = tell if NONE in run.options.calibrations else silent, other_score(scoring)
    for each in {job.task.name: job for job in reversed(jobs) if job.task.free is None}.values():
        prompt, query = each.demonstrations if isinstance(each, Job) else each.task.prompt, next(iter(each.evaluated))
        labels, where = each.task.labels or (str(query.gold),), f"task {each.task.name}: "
        check_labels(run.spec.tokenizer, prompt, scoring, query.text, labels, tell, where=where, options=other)


def prepare_jobs(run: Run, task: Task, shared: SharedRows) -> Iterator[Prepared]:
    """Yield a task's jobs for every seed, with every check that does not need the weights.

    Demonstrations that do not fit the model are dropped, starting with the first. Rows that are `shared` with other
    runs are kept. Raises InputError for a task whose rows cannot be read, or if no demonstration fits.
    """
    _check_free(run, task)
    for name in from_rows(run.options.calibrations) if not task.labels else ():
        raise own_candidates(name, f"task {task.name}")
    (protocol,), limit = run.options.protocols, run.options.limit
    key = (task.name, digest(task), protocol, run.source, limit)
    if key not in shared:
        shared[key] = evaluation_set(task, protocol, run.source, limit)
    evaluated = shared[key]
    if run.options.demos_by:
        fitting = pool_of_task(task, evaluated).fitting(run.spec.tokenizer, run.spec.limits)
    for seed in run.options.seeds:
        if not run.options.demos_by:
            sampling = "given" if run.demonstrations else run.options.sampling[0] or task.sampling
            yield from jobs_after(run, evaluated, seed, _drawn(run, evaluated, seed), sampling)
            continue
        pool = fitting.sampled(run.options.pool_size, seed)
        for method in run.options.demos_by:
            shots, balance = run.options.shots[0] or task.shots, run.options.balance
            choice = SelectOptions(demos_by=method, shots=shots, seed=seed, balance=balance)
            check_choice(pool, choice)
            yield PendingJobs(run, evaluated, seed, pool, choice)


def _check_free(run: Run, task: Task) -> None:
    """Raise InputError for a task with free answers and options of scores, and for programs that may not be run."""
    if task.free is None:
        return
    options = run.options
    check_may_run(task, options.run_code)
    wrong = {
        **dict.fromkeys(options.scoring.of_scores.items(), True),
        ("calibrate", ",".join(options.calibrations)): options.calibrations != (NONE,),
        ("demos_by", ",".join(options.demos_by)): bool(options.demos_by),
        ("technique", ",".join(options.techniques)): any(each.members > 1 for each in options.chosen_techniques),
        ("choose_on", "dev"): options.choose_on is not None and judge_of(task.free).runs_code,
    }
    for (field, value), given in wrong.items():
        if given:
            reason = f"task {task.name} has free answers, without scores; run it without this option"
            raise InputError.of(field, value, reason)


def _drawn(run: Run, evaluated: EvaluationSet, seed: int) -> Drawn:
    if run.demonstrations is not None:
        examples = run.demonstrations.examples
        rows = [
            (f"{option('demos')}: row {n}, {shorten(as_lines(each.text), 40, placeholder='...')!r}", each)
            for n, each in enumerate(examples, start=1)
        ]
        check_held_out(rows, evaluated, "or use think and eval, which also reports the accuracy without such rows")
        return Drawn(run.demonstrations, Counter())
    return draw_demonstrations(
        evaluated.task, evaluated, run.options.shots[0], seed, run.options.orders[0], run.options.sampling[0]
    )
