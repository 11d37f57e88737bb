"""`deepthink study plan` and `run`: what a study takes, and its runs in one folder that can be continued."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.command import Program
from deepthink_cli.cli.console import Show, duration, note, report, table, write_json
from deepthink_cli.cli.data_options import Cache
from deepthink_cli.cli.executor_options import ElsewhereOptions, ExecutorArguments, Machines
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.help import HelpGroup
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.output_options import Watching, observed
from deepthink_cli.cli.run import Samples, report_summary
from deepthink_cli.cli.run_progress import RunProgress
from deepthink_cli.cli.study import described, list_studies, plot_study, report_study, show_study, validate_study
from deepthink_cli.cli.study_options import UNNAMED, StudyArguments, StudyName, StudyOutput, folder_of
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.events import telling_all
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.experiments.crossing import Crossing
    from deepthink_cli.experiments.planning import ModelPlan
    from deepthink_cli.experiments.study import OpenedStudy

if TYPE_CHECKING:
    StudyObservers = Options
else:
    StudyObservers = observed("run")


@about(first="output scale model task seeds iterations limit data_dir samples workers")
@grouped
def run_study(
    context: typer.Context,
    study: StudyName,
    output: StudyOutput = None,
    samples: Samples = False,
    *,
    watching: Given[StudyObservers],
    cache: Cache = None,
    replaced: StudyArguments,
    model: Annotated[Given[ModelOptions], Without(*UNNAMED)],
    divided: ExecutorArguments,
    elsewhere: Given[ElsewhereOptions],
    common: CommonArguments,
) -> None:
    """Do the runs of a study, model by model, into one folder; an interrupted study is continued."""
    from deepthink_cli.experiments.prepare import prepare
    from deepthink_cli.experiments.run import execute
    from deepthink_cli.experiments.study import Origin
    from deepthink_cli.outputs import check_run_apart
    from deepthink_cli.selection.store import Store, default_folder

    problems, observers, reads = Problems(), Watching("run", watching), list[str | Path]()
    with problems.collected():
        opened, crossing = replaced.crossed(context, study, model)
        reads += _read(opened, crossing, common.config)
    with problems.collected():
        machines = Machines.checked(divided, elsewhere)
    with problems.collected():
        observers.check(reads)
    problems.raise_any()
    folder = folder_of(output, opened)
    written = machines.folder(folder)
    check_run_apart(written, reads)
    cache = cache or default_folder()
    with Show(common) as tell, machines.executor(model.device, cache) as executor:
        runs = prepare(crossing, written, tell)
        if machines.queued(folder, common.quiet):
            return
        Origin.of(study, replaced.scale).write(written)
        told = telling_all(tell, RunProgress(common.quiet or common.as_json), observers.start(tell))
        summary = execute(runs, samples, told, Store(cache), executor, machines.shard)
    report_summary(summary, common, f"deepthink report {folder}")


def _read(opened: OpenedStudy, crossing: Crossing, config: Path | None) -> list[str | Path]:
    """The files and folders that the study reads."""
    data_dir = None if opened.study.data_dir is None else Path(opened.study.data_dir)
    paths = read_by(opened.path, opened.study.demos, task=list(crossing.tasks), data_dir=data_dir, config=config)
    for options in opened.study.models:
        paths += read_by(model=options.model, adapter=options.adapter)
    return paths


NoProbe = Annotated[
    bool,
    Flag(OUTPUT, "Load no model: compute the time from its parameters.", variable=False),
]
Speed = Annotated[
    float | None,
    typer.Option(
        "--speed",
        metavar="TFLOPS",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Speed that computed times assume, in TFLOP/s. Default: that of products of matrices on this device.",
    ),
]


@about(first="output no_probe speed scale model task seeds iterations limit json")
@grouped
def plan_study(
    context: typer.Context,
    study: StudyName,
    output: StudyOutput = None,
    no_probe: NoProbe = False,
    speed: Speed = None,
    *,
    replaced: StudyArguments,
    model: Annotated[Given[ModelOptions], Without(*UNNAMED)],
    common: CommonArguments,
) -> None:
    """Show what a study takes: for each model its rows, those that exist, time and memory. Downloads nothing.

    Times are measured by a short probe where the weights are on this machine, and computed from the number of
    parameters elsewhere.
    """
    from deepthink_cli.experiments.planning import plan_study as plans_of

    problems = Problems()
    with problems.collected():
        assumed = None if speed is None else _positive(speed)
    with problems.collected():
        opened, crossing = replaced.crossed(context, study, model)
    problems.raise_any()
    folder = folder_of(output, opened)
    with Show(common) as tell:
        plans = list(plans_of(crossing, folder, not no_probe, assumed, tell))
    values = described(opened, crossing)
    if common.as_json:
        write_json({**values, "out": str(folder), "plan": [plan.as_json() for plan in plans]})
        return
    _show(opened, values, folder, plans, speed is None, common.quiet)


def _positive(speed: float) -> float:
    if not 0 < speed < float("inf"):
        raise InputError.of("speed", f"{speed:g}", "a number of TFLOP/s above 0, as in 100")
    return speed


def _show(
    opened: OpenedStudy,
    values: dict[str, Any],
    folder: Path,
    plans: list[ModelPlan],
    is_measured: bool,
    quiet: bool,
) -> None:
    title = opened.study.title
    report(f"study    {values['study']}{f': {title}' if title else ''}", f"tasks    {_first(values['tasks'])}")
    report(f"folder   {folder} (not written: this is a plan)", "")
    columns = ("model", "rows", "exist", "inputs", "time", "by", "parameters", "files", "memory")
    report(table(*columns, rows=[_cells(plan) for plan in plans]))
    if speeds := sorted({plan.speed for plan in plans if plan.speed is not None}):
        named = " or ".join(f"{speed:.3g}" for speed in speeds)
        report(
            "",
            f"computed: the arithmetic of the missing rows at {named} TFLOP/s, "
            f"{'the speed of products of matrices here' if is_measured else 'as --speed says'}; a rough figure",
        )
    for plan in plans:
        if plan.reason is not None:
            counted = "" if plan.exact else " (rows are counted from the definitions of the tasks)"
            note(f"{plan.model}: {plan.reason}{counted}", quiet)


def _cells(plan: ModelPlan) -> list[str]:
    values: dict[str, Any] = asdict(plan)
    time = "unknown" if plan.seconds is None else duration(plan.seconds)
    return [
        plan.model,
        f"{plan.rows:,}",
        f"{plan.written:,}",
        f"{plan.inputs:,}",
        time,
        plan.basis or "",
        "" if plan.parameters is None else _millions(plan.parameters),
        *("" if values[name] is None else gigabytes(values[name]) for name in ("file_bytes", "memory_bytes")),
    ]


def _millions(parameters: float) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:,.1f} M"


def gigabytes(count: float) -> str:
    """A number of bytes in GB, or in MB if it is small."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def _first(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"


studies = Program(
    cls=HelpGroup,
    help="Studies: YAML files that cross models, tasks and settings into runs of one folder.",
    no_args_is_help=True,
)
about("study run example --scale small", group="Experiments")(studies)
studies.command("list", epilog="Example: deepthink study list")(list_studies)
studies.command("show", epilog="Example: deepthink study show example > mine.yaml")(show_study)
studies.command("validate", epilog="Example: deepthink study validate mine.yaml")(validate_study)
studies.command("plan", epilog="Example: deepthink study plan example --json")(plan_study)
studies.command("run", epilog="Example: deepthink study run example --scale small -o runs/example")(run_study)
studies.command("report", epilog="Example: deepthink study report example --runs runs/example")(report_study)
studies.command("plot", epilog="Example: deepthink study plot example --runs runs/example -o figure.pdf")(plot_study)
