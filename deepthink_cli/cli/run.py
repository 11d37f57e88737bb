"""`deepthink run`: evaluate tasks at every iteration with several seeds, into a folder that can be resumed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, duration, note, report, write_json
from deepthink_cli.cli.data_options import ChatArguments, DataDir, TaskNames
from deepthink_cli.cli.executor_options import ExecutorArguments, Machines
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments, tell_of_toy
from deepthink_cli.cli.output_options import Watching, observed
from deepthink_cli.cli.run_progress import RunProgress
from deepthink_cli.cli.scoring_options import ScoringOptions
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.errors import Problems
from deepthink_cli.events import telling_all
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import DATA, OUTPUT, Flag, Options
from deepthink_cli.scoring.scoring import Scoring

if TYPE_CHECKING:
    from deepthink_cli.experiments.estimate import Estimate
    from deepthink_cli.experiments.run import RunSummary

# Headings of what a run crosses.
CROSSED = {
    "shots": "shots",
    "orders": "orders",
    "sampling": "drawn",
    "positions": "position",
    "demos_by": "demos by",
    "techniques": "techniques",
    "calibrations": "scores",
    "updates": "updates",
}
Output = Annotated[
    Path,
    Flag(
        OUTPUT,
        "Folder of the run; an interrupted run is resumed.",
        "FOLDER",
        short="-o",
        variable=False,
    ),
]
Demos = Annotated[
    str | None,
    Flag(DATA, "Use the demonstrations of this file; for one task and one seed only.", "FILE", variable=False),
]
Samples = Annotated[bool, Flag(OUTPUT, "Also write every input's scores, as Parquet.", variable=False)]
DryRun = Annotated[
    bool,
    Flag(
        OUTPUT,
        "Print what would be done, and an estimate of the time from a short probe if the weights are here.",
        variable=False,
    ),
]

# Fields of a study that are no options of a run, which is a study in one line.
OF_STUDIES = ("order_seed", "sampling", "tokens", "pool_size", "balance")

if TYPE_CHECKING:
    RunObservers = Options
else:
    RunObservers = observed("run")


@about(
    "run --task classic -m gpt2 -T 15 --seeds 10 -o runs/gpt2",
    first="task output model iterations at eta seeds technique calibrate limit data_dir dry_run",
)
@grouped
def run(
    context: typer.Context,
    task: TaskNames = None,
    output: Output = Path("run"),
    *,
    model: Annotated[Given[ModelOptions], Without("engine"), NEW_MODEL],
    options: Annotated[Given[Experiment], Without(*OF_STUDIES)],
    scoring: Annotated[Given[ScoringOptions], Without("nearest", "truncate")],
    demos: Demos = None,
    chat: Annotated[ChatArguments, Without("system")],
    data_dir: DataDir = None,
    samples: Samples = False,
    watching: Given[RunObservers],
    dry_run: DryRun = False,
    divided: ExecutorArguments,
    common: CommonArguments,
) -> None:
    """Think once for every task and seed, and score every T."""
    from deepthink_cli.experiments.crossing import cross
    from deepthink_cli.experiments.estimate import estimate_runs
    from deepthink_cli.experiments.plan import run_tasks
    from deepthink_cli.experiments.prepare import described, prepare
    from deepthink_cli.experiments.run import execute
    from deepthink_cli.outputs import check_run_apart
    from deepthink_cli.selection.store import Store, default_folder
    from deepthink_cli.tasks.sources import source_of
    from deepthink_cli.updates.rules import grid_text

    problems, observers, reads = Problems(), Watching("run", watching), list[str | Path]()
    problems.tried(check_given, context, "run")
    model_options = problems.tried(model.checked)
    with problems.collected():
        experiment = options.checked()
        _ = experiment.scored  # raises for iterations beyond T
    steps = problems.tried(Scoring.of, **scoring.changed)
    problems.tried(source_of, data_dir, model.offline)
    paths: dict[str, Any] = {"model": model.model, "task": task, "data_dir": data_dir, "config": common.config}
    with problems.collected():
        run_tasks(task or ())
    folder = output
    with problems.collected():
        machines = Machines.checked(divided, demos)
        folder = machines.folder(output)
    with problems.collected():
        reads += read_by(demos, **paths)
    with problems.collected():
        observers.check(reads, [output])
        check_run_apart(folder, reads)
    problems.raise_any()
    named: dict[str, Any] = {"models": (model_options,), "tasks": tuple(task or ())}
    named |= {"demos": demos, "data_dir": data_dir and str(data_dir), "chat": chat.chat}
    named |= {"scoring": steps}
    crossing = cross(experiment.model_copy(update=named))
    cache = default_folder()
    machine = nullcontext() if dry_run else machines.executor(model_options.device, cache)
    with Show(common) as tell, machine as executor:
        tell_of_toy(model, tell)
        jobs = prepare(crossing, folder, tell)
        if dry_run:
            estimated, gates = estimate_runs(jobs, folder, tell=tell), grid_text(experiment.rules)
            _show_plan(described(crossing.experiment, jobs, folder), gates, estimated, common.as_json)
            return
        if machines.queued(output, common.quiet):
            return
        told = telling_all(tell, RunProgress(common.quiet or common.as_json), observers.start(tell))
        summary = execute(jobs, folder, samples, told, Store(cache), executor, machines.shard)
    report_summary(summary, common, f"deepthink report {output}    or: deepthink plot {output}")


def _show_plan(values: dict[str, Any], gates: str, estimated: Estimate, json: bool) -> None:
    if json:
        write_json({**values, "estimate": asdict(estimated)})
        return
    tasks, work = values["tasks"], f"{values['jobs']} jobs, {values['rows']:,} rows"
    report(
        f"model    {values['model']}",
        f"tasks    {len(tasks)}: {', '.join(tasks[:8])}{', ...' if len(tasks) > 8 else ''}",
        f"seeds    {', '.join(map(str, values['seeds']))}",
        f"gates    {gates}; T = {_iterations(values)}",
        *(f"{shown:8} {', '.join(map(_named, values[name]))}" for name, shown in CROSSED.items() if name in values),
        *([f"scoring  {values['scoring']}"] if values["scoring"] else []),
        f"work     {work}, {values['inputs_to_score']:,} inputs to score",
        f"tokens   about {estimated.tokens:,} to read",
        f"time     {_time(estimated)}",
        f"folder   {values['out']} (not written: this is a dry run)",
    )


def _time(estimated: Estimate) -> str:
    """The estimated time of the missing rows, what it rests on, and what exists already."""
    there = f"; {estimated.written} rows are there already" if estimated.written else ""
    if estimated.seconds is None:
        return f"not estimated: {estimated.reason}{there}"
    if not estimated.rows:
        return "nothing to do: all rows are there already"
    return f"about {duration(estimated.seconds)}, by a short probe{there}"


def _iterations(values: dict[str, Any]) -> str:
    if len(values["scored_iterations"]) == values["iterations"]:
        return f"1 to {values['iterations']}"
    return ", ".join(map(str, values["scored_iterations"]))


def _named(value: object) -> str:
    return "the task's own" if value is None else str(value)


def report_summary(summary: RunSummary, common: CommonArguments, following: str) -> None:
    """Print what was written, and the command that follows."""
    if common.as_json:
        write_json(asdict(summary))
    seconds = f"{summary.seconds:.1f} s"
    note(f"{summary.out}: {summary.written} rows written, {summary.inputs:,} inputs scored in {seconds}", common.quiet)
    note(f"next: {following}", common.quiet)
