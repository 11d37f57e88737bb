"""`deepthink run`: whole suites, every iteration of every seed, into a folder that can be continued."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli import options
from deepthink_cli.cli.console import note, report, write_json
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.runprogress import RunProgress
from deepthink_cli.cli.tasking import announce, given_demonstrations, source_of
from deepthink_cli.cli.values import model_options
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.options import RunOptions
    from deepthink_cli.runs.folder import RunFolder
    from deepthink_cli.runs.plan import RunJob, RunPlan
    from deepthink_cli.runs.runner import Work
    from deepthink_cli.tasks.format import Task

Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FOLDER", rich_help_panel=options.OUTPUT, help="Folder of the run; a killed one continues."
    ),
]
Demos = Annotated[
    str | None,
    typer.Option(
        "--demos",
        metavar="FILE",
        rich_help_panel=options.DATA,
        help="Use these demonstrations; with one task and one seed.",
    ),
]
Select = Annotated[
    str | None,
    typer.Option(
        "--select", metavar="dev", rich_help_panel=options.METHOD,
        help="Also score a dev set of training rows, on which report then chooses T and eta.",
    ),
]  # fmt: skip
DevSize = Annotated[
    str | None,
    typer.Option(
        "--dev-size",
        metavar="N",
        rich_help_panel=options.METHOD,
        help="Rows of the dev set. Default: as many as the test has.",
    ),
]
Samples = Annotated[
    bool, typer.Option("--samples", rich_help_panel=options.OUTPUT, help="Also keep every input's scores, as Parquet.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", rich_help_panel=options.OUTPUT, help="Print what would be done.")]


def run(
    task: options.TaskNames = None,
    out: Out = Path("run"),
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = options.DtypeName.auto,
    device: options.Device = "auto",
    device_map: options.DeviceMap = None,
    quantize: options.Quantize = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    batch_tokens: options.BatchTokens = None,
    iterations: options.Iterations = "5",
    eta: options.Etas = "0.01",
    momentum: options.Momentums = "0",
    positions: options.Positions = options.PositionsName.continued,
    select: Select = None,
    dev_size: DevSize = None,
    seeds: options.Seeds = "1",
    shots: options.Shots = None,
    order_seed: options.OrderSeed = None,
    sampling: options.SamplingChoice = None,
    demos: Demos = None,
    protocol: options.ProtocolName = "official",
    data_dir: options.DataDir = None,
    limit: options.Limit = None,
    samples: Samples = False,
    dry_run: DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    config: options.Config = None,
) -> None:
    """Think once for every task and seed, and score every iteration up to T; a killed run continues where it stopped."""
    from deepthink_cli.cli.recall import find_model
    from deepthink_cli.options import RunOptions
    from deepthink_cli.tasks.catalogue import find_tasks
    from deepthink_cli.updates.gate import grid_text
    from deepthink_cli.workflows.outputs import check_run_apart

    problems = Problems()
    with problems.collected():
        chosen = model_options(
            model, revision, dtype, device, device_map, quantize, offline, trust_remote_code, batch_tokens
        )
    with problems.collected():
        repeated = RunOptions.checked(
            iterations=iterations, etas=eta, momentums=momentum, positions=positions.value, select=select, dev_size=dev_size,
            seeds=seeds, shots=shots, order_seed=order_seed, sampling=sampling.value if sampling else None, limit=limit,
        )  # fmt: skip
    with problems.collected():
        source = source_of(data_dir, offline)
    with problems.collected():
        check_run_apart(out, read_by(demos, model=model, task=task, data_dir=data_dir, config=config))
    found: list[Task] = []
    with problems.collected():
        if not task:
            raise InputError("--task: no task; name one or more, as in --task classic")
        found = find_tasks(task)
    problems.raise_any()
    spec = find_model(chosen, quiet)
    plan = _plan(found, repeated, protocol, source, demos)
    announce(source, len(found), quiet)
    jobs = _jobs(plan, spec, quiet)
    _check_folder_continues(plan, jobs, spec, out)
    if dry_run:
        _show_plan(_described(plan, jobs, spec, out), grid_text(plan.gates), json)
        return
    _run(plan, jobs, spec, out, samples, json, quiet, verbose)


def _plan(tasks: list[Task], options: RunOptions, protocol: str, source: Any, demos: str | None) -> RunPlan:
    from deepthink_cli.runs.plan import RunPlan

    if demos is not None and (len(tasks) > 1 or len(options.every_seed) > 1):
        raise InputError(f"--demos {demos}: stands for one task and one seed; name one task and leave --seeds away")
    given = given_demonstrations(tasks[0], demos) if demos is not None else None
    return RunPlan(
        tasks=tuple(tasks), seeds=options.every_seed, iterations=options.iterations, gates=options.gates,
        positions=options.positions, protocol=protocol, source=source, limit=options.limit,
        shots=options.shots, sampling=options.sampling, order_seed=options.order_seed, given=given,
        select_dev=options.select is not None, dev_size=options.dev_size,
    )  # fmt: skip


def _jobs(plan: RunPlan, spec: ModelSpec, quiet: bool) -> list[RunJob]:
    """Every job of every task, checked; all mistakes are told together."""
    from deepthink_cli.cli.console import progress
    from deepthink_cli.runs.plan import prepare_jobs

    problems, jobs = Problems(), []
    with progress(quiet) as shown:
        bar = shown.add_task("reading tasks", total=len(plan.tasks))
        for task in plan.tasks:
            with problems.collected():
                jobs += list(prepare_jobs(plan, spec, task))
            shown.advance(bar)
    problems.raise_any()
    for job in jobs:
        asked, used = len(job.drawn.demonstrations.examples), len(job.demonstrations.examples)
        if used < asked:
            note(f"{job.task.name}, seed {job.seed}: {used} of {asked} demonstrations fit {spec.id}", quiet)
    return jobs


def _check_folder_continues(plan: RunPlan, jobs: Sequence[RunJob], spec: ModelSpec, out: Path) -> None:
    """Raise InputError where the folder's rows come from other data; warn, also if quiet, where that is unknown."""
    from deepthink_cli.runs.folder import found_in
    from deepthink_cli.runs.plan import settings
    from deepthink_cli.runs.same_data import check_continues, unchecked

    found = found_in(out)
    if not found:
        return
    identity = spec.identify()
    planned = [one for job in jobs for one in settings(plan, job, identity)]
    check_continues(found, planned)
    if count := unchecked(found, planned):
        note(
            f"warning: {out}: {count} rows were written by an older version, without a digest of the evaluated rows; "
            "whether the evaluated rows have changed since could not be checked"
        )


def _described(plan: RunPlan, jobs: Sequence[RunJob], spec: ModelSpec, out: Path) -> dict[str, Any]:
    from deepthink_cli.runs.plan import scorings, settings
    from deepthink_cli.updates.gate import grid_values

    identity = spec.identify()
    rows = [(job, settings(plan, job, identity)) for job in jobs]
    return {"model": spec.id, "out": str(out), "tasks": [task.name for task in plan.tasks], "seeds": list(plan.seeds),
            **grid_values(plan.gates), "iterations": plan.iterations, "jobs": len(jobs),
            "rows": sum(len(wanted) for _, wanted in rows),
            "inputs_to_score": sum(scorings(plan, job, wanted) for job, wanted in rows)}  # fmt: skip


def _show_plan(plan: dict[str, Any], gates: str, json: bool) -> None:
    if json:
        write_json(plan)
        return
    report(
        f"model    {plan['model']}",
        f"tasks    {len(plan['tasks'])}: {', '.join(plan['tasks'][:8])}{', ...' if len(plan['tasks']) > 8 else ''}",
        f"seeds    {', '.join(map(str, plan['seeds']))}",
        f"gates    {gates}; T = 1 to {plan['iterations']}",
        f"work     {plan['jobs']} jobs, {plan['rows']:,} rows, {plan['inputs_to_score']:,} inputs to score",
        f"folder   {plan['out']} (not written: this is a dry run)",
    )


def _run(
    plan: RunPlan,
    jobs: Sequence[RunJob],
    spec: ModelSpec,
    out: Path,
    samples: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from deepthink_cli.cli.recall import load, say_loaded
    from deepthink_cli.runs.folder import open_run_folder
    from deepthink_cli.runs.plan import settings
    from deepthink_cli.runs.same_data import check_continues

    with open_run_folder(out) as run_folder:
        model = load(spec, quiet)
        say_loaded(model, quiet, verbose, always=True)
        for job in jobs:
            model.check_ids(job.demonstrations.token_ids, f"task {job.task.name}, seed {job.seed}: demonstrations")
        asked = [(job, settings(plan, job, model.identity)) for job in jobs]
        # Checked again: downloaded weights have a digest now, and another process may have written rows meanwhile.
        check_continues(run_folder.found, [one for _, all_rows in asked for one in all_rows])
        rows = sum(len(all_rows) for _, all_rows in asked)
        missing = [(job, [one for one in all_rows if not run_folder.has(one)]) for job, all_rows in asked]
        left = sum(len(wanted) for _, wanted in missing)
        if left < rows:
            note(f"{out}: {rows - left} of {rows} rows are there already", quiet)
        started = time.perf_counter()
        try:
            scored = _score(plan, missing, model, run_folder, samples, quiet or json)
        except KeyboardInterrupt:
            note(f"{out}: {len(run_folder.done)} rows are kept; the same command continues the run", quiet)
            raise
    seconds = time.perf_counter() - started
    if json:
        write_json({"out": str(out), "rows": rows, "written": left, "inputs": scored, "seconds": seconds})
    note(f"{out}: {left} rows written, {scored:,} inputs scored in {seconds:.1f} s", quiet)
    note(f"next: deepthink report {out}    or: deepthink plot {out}", quiet)


def _score(
    plan: RunPlan,
    work: Work,
    model: Engine,
    run_folder: RunFolder,
    samples: bool,
    quiet: bool,
) -> int:
    from deepthink_cli.runs.runner import run_jobs, together
    from deepthink_cli.runs.samples import write_samples

    with RunProgress(plan, work, quiet) as shown:
        for jobs in together(plan, model, work):
            mine = [job for job, wanted in jobs if wanted]
            if not mine:
                continue
            shown.start(mine)
            for step in run_jobs(plan, model, jobs):
                shown.scored(step.job, step.scored)
                if step.row is not None:
                    if samples:
                        write_samples(run_folder.folder, step.row, step.predictions)
                    run_folder.append(step.row)
                    shown.row(step.job, step.row)
            shown.finish(mine)
        return shown.inputs
