"""`deepthink run`: whole suites, every iteration of every seed, into a folder that can be continued."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.console import note, report, write_json
from deepthink_cli.cli.data_options import DataDir, DrawingArguments, Limit, ProtocolName, TaskNames
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.method_options import SweepArguments
from deepthink_cli.cli.options import DATA, OUTPUT, CommonArguments, ModelArguments
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.runprogress import RunProgress
from deepthink_cli.cli.tasking import announce, given_demonstrations, source_of
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.engine.network import LanguageModel
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.options import RunOptions
    from deepthink_cli.runs.folder import RunFolder
    from deepthink_cli.runs.plan import RunJob, RunPlan
    from deepthink_cli.runs.runner import Work
    from deepthink_cli.tasks.format import Task

Out = Annotated[
    Path,
    typer.Option("--out", metavar="FOLDER", rich_help_panel=OUTPUT, help="Folder of the run; a killed one continues."),
]
Demos = Annotated[
    str | None,
    typer.Option(
        "--demos",
        metavar="FILE",
        rich_help_panel=DATA,
        help="Use these demonstrations; with one task and one seed.",
    ),
]
Samples = Annotated[
    bool, typer.Option("--samples", rich_help_panel=OUTPUT, help="Also keep every input's scores, as Parquet.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", rich_help_panel=OUTPUT, help="Print what would be done.")]


@grouped
def run(
    task: TaskNames = None,
    out: Out = Path("run"),
    *,
    model: ModelArguments,
    sweep: SweepArguments,
    drawing: Annotated[DrawingArguments, Without("seed")],
    demos: Demos = None,
    protocol: ProtocolName = "official",
    data_dir: DataDir = None,
    limit: Limit = None,
    samples: Samples = False,
    dry_run: DryRun = False,
    common: CommonArguments,
) -> None:
    """Think once for every task and seed, and score every iteration up to T; a killed run continues where it stopped."""
    from deepthink_cli.cli.recall import find_model
    from deepthink_cli.tasks.catalogue import find_tasks
    from deepthink_cli.workflows.outputs import check_run_apart

    problems = Problems()
    with problems.collected():
        model_options = model.checked()
    with problems.collected():
        run_options = sweep.checked(drawing, limit)
    with problems.collected():
        source = source_of(data_dir, model.offline)
    with problems.collected():
        read = read_by(demos, model=model.model, task=task, data_dir=data_dir, config=common.config)
        check_run_apart(out, read)
    tasks: list[Task] = []
    with problems.collected():
        if not task:
            raise InputError("--task: no task; name one or more, as in --task classic")
        tasks = find_tasks(task)
    problems.raise_any()
    spec = find_model(model_options, common.quiet)
    plan = _plan(tasks, run_options, protocol, source, demos)
    announce(source, len(tasks), common.quiet)
    jobs = _jobs(plan, spec, common.quiet)
    _check_folder_continues(plan, jobs, spec, out)
    if dry_run:
        _show_plan(_described(plan, jobs, spec, out), common.json)
        return
    _run(plan, jobs, spec, out, samples, common)


def _plan(tasks: list[Task], options: RunOptions, protocol: str, source: Any, demos: str | None) -> RunPlan:
    from deepthink_cli.runs.plan import RunPlan

    if demos is not None and (len(tasks) > 1 or len(options.every_seed) > 1):
        raise InputError(f"--demos {demos}: only for one task and one seed; name one task and omit --seeds")
    fixed = given_demonstrations(tasks[0], demos) if demos is not None else None
    return RunPlan(
        tasks=tuple(tasks),
        seeds=options.every_seed,
        iterations=options.iterations,
        etas=options.etas,
        momentums=options.momentums,
        positions=options.positions,
        protocol=protocol,
        source=source,
        limit=options.limit,
        shots=options.shots,
        sampling=options.sampling,
        order_seed=options.order_seed,
        given=fixed,
        select_dev=options.select is not None,
        dev_size=options.dev_size,
    )


def _jobs(plan: RunPlan, spec: ModelSpec, quiet: bool) -> list[RunJob]:
    """The jobs of all tasks, checked; raises InputError with the mistakes of all."""
    from deepthink_cli.cli.console import progress
    from deepthink_cli.runs.plan import prepare_jobs

    problems, jobs = Problems(), []
    with progress(quiet) as bars:
        bar = bars.add_task("reading tasks", total=len(plan.tasks))
        for task in plan.tasks:
            with problems.collected():
                jobs += list(prepare_jobs(plan, spec, task))
            bars.advance(bar)
    problems.raise_any()
    for job in jobs:
        drawn, used = len(job.drawn.demonstrations.examples), len(job.demonstrations.examples)
        if used < drawn:
            note(f"{job.task.name}, seed {job.seed}: {used} of {drawn} demonstrations fit {spec.id}", quiet)
    return jobs


def _check_folder_continues(plan: RunPlan, jobs: Sequence[RunJob], spec: ModelSpec, out: Path) -> None:
    """Raise InputError if the folder's rows come from other data; warn, also if quiet, if that is unknown."""
    from deepthink_cli.runs.folder import found_in
    from deepthink_cli.runs.plan import settings
    from deepthink_cli.runs.same_data import check_continues, unchecked

    existing = found_in(out)
    if not existing:
        return
    identity = spec.identity
    planned = [setting for job in jobs for setting in settings(plan, job, identity)]
    check_continues(existing, planned)
    if count := unchecked(existing, planned):
        note(
            f"warning: {out}: {count} rows were written by an older version, without a digest of the evaluated rows; "
            "whether the evaluated rows have changed since could not be checked"
        )


def _described(plan: RunPlan, jobs: Sequence[RunJob], spec: ModelSpec, out: Path) -> dict[str, Any]:
    from deepthink_cli.runs.plan import scorings, settings

    identity = spec.identity
    rows = [(job, settings(plan, job, identity)) for job in jobs]
    return {
        "model": spec.id,
        "out": str(out),
        "tasks": [task.name for task in plan.tasks],
        "seeds": list(plan.seeds),
        "etas": list(plan.etas),
        "momentums": list(plan.momentums),
        "iterations": plan.iterations,
        "jobs": len(jobs),
        "rows": sum(len(wanted) for _, wanted in rows),
        "inputs_to_score": sum(scorings(plan, job, wanted) for job, wanted in rows),
    }


def _show_plan(plan: dict[str, Any], json: bool) -> None:
    if json:
        write_json(plan)
        return
    etas, momentums = (", ".join(map(str, plan[name])) for name in ("etas", "momentums"))
    report(
        f"model    {plan['model']}",
        f"tasks    {len(plan['tasks'])}: {', '.join(plan['tasks'][:8])}{', ...' if len(plan['tasks']) > 8 else ''}",
        f"seeds    {', '.join(map(str, plan['seeds']))}",
        f"gates    eta {etas}; momentum {momentums}; T = 1 to {plan['iterations']}",
        f"work     {plan['jobs']} jobs, {plan['rows']:,} rows, {plan['inputs_to_score']:,} inputs to score",
        f"folder   {plan['out']} (not written: this is a dry run)",
    )


def _run(
    plan: RunPlan,
    jobs: Sequence[RunJob],
    spec: ModelSpec,
    out: Path,
    samples: bool,
    common: CommonArguments,
) -> None:
    from deepthink_cli.cli.recall import load, say_loaded
    from deepthink_cli.runs.folder import open_run_folder
    from deepthink_cli.runs.plan import settings
    from deepthink_cli.runs.same_data import check_continues

    with open_run_folder(out) as run_folder:
        model = load(spec, common.quiet)
        say_loaded(model, common.quiet, common.verbose, always=True)
        for job in jobs:
            model.check_ids(job.demonstrations.token_ids, f"task {job.task.name}, seed {job.seed}: demonstrations")
        planned = [(job, settings(plan, job, model.identity)) for job in jobs]
        # Checked again: downloaded weights have a digest now, and another process may have written rows meanwhile.
        check_continues(run_folder.found, [setting for _, job_rows in planned for setting in job_rows])
        rows = sum(len(job_rows) for _, job_rows in planned)
        missing = [(job, [row for row in job_rows if not run_folder.has(row)]) for job, job_rows in planned]
        left = sum(len(wanted) for _, wanted in missing)
        if left < rows:
            note(f"{out}: {rows - left} of {rows} rows are there already", common.quiet)
        started = time.perf_counter()
        try:
            scored = _score(plan, missing, model, run_folder, samples, common.quiet or common.json)
        except KeyboardInterrupt:
            note(f"{out}: {len(run_folder.done)} rows are kept; the same command continues the run", common.quiet)
            raise
    seconds = time.perf_counter() - started
    if common.json:
        write_json({"out": str(out), "rows": rows, "written": left, "inputs": scored, "seconds": seconds})
    note(f"{out}: {left} rows written, {scored:,} inputs scored in {seconds:.1f} s", common.quiet)
    note(f"next: deepthink report {out}    or: deepthink plot {out}", common.quiet)


def _score(
    plan: RunPlan,
    work: Work,
    model: LanguageModel,
    run_folder: RunFolder,
    samples: bool,
    quiet: bool,
) -> int:
    from deepthink_cli.runs.runner import run_jobs, together
    from deepthink_cli.runs.samples import write_samples

    with RunProgress(plan, work, quiet) as progress:
        for jobs in together(plan, model, work):
            unfinished = [job for job, wanted in jobs if wanted]
            if not unfinished:
                continue
            progress.start(unfinished)
            for step in run_jobs(plan, model, jobs):
                progress.scored(step.job, step.scored)
                if step.row is not None:
                    if samples:
                        write_samples(run_folder.folder, step.row, step.predictions)
                    run_folder.append(step.row)
                    progress.row(step.job, step.row)
            progress.finish(unfinished)
        return progress.inputs
