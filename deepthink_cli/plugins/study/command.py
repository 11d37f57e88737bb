"""Cross models, tasks and settings, as a YAML file says.

The runs of a study are in one folder.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.command import Program
from deepthink_cli.cli.console import Show, duration, note, report, table, write_json
from deepthink_cli.cli.data_options import DataDir, TaskNames
from deepthink_cli.cli.executor_options import ExecutorArguments, Machines
from deepthink_cli.cli.grouped import Given, Without, grouped, option_of
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.run import Samples, do_runs
from deepthink_cli.cli.sources import came_from, is_typed
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import Problems
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.observers import Watching, observed
from deepthink_cli.options import DATA, MODEL, OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.experiments.estimate import Estimate
    from deepthink_cli.plugins.study.crossing import Crossing

    StudyObservers = Options
else:
    StudyObservers = observed("run")

StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="Study file, or the name of a study of the package, as in example (deepthink study list)."
    ),
]
StudyOutput = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Folder of the study's rows; an interrupted study is continued. Default: runs/NAME of the study.",
        "FOLDER",
        short="-o",
        variable=False,
    ),
]
# The model options that say where and how to compute; which model is a matter of the study.
UNNAMED = ("model", "revision")


class StudyArguments(Options):
    """One of the study's scales, and values in place of the study's; None keeps the study's value."""

    scale: Annotated[
        str | None, Flag(DATA, "Replace the study's fields by those of this scale.", "NAME", variable=False)
    ] = None
    model: Annotated[
        str | None,
        Flag(
            MODEL,
            "Models in place of those of the study: hub ids, local directories or GGUF files.",
            "MODEL,...",
            short="-m",
            variable=False,
        ),
    ] = None
    task: TaskNames = None
    seeds: option_of(Experiment, "seeds") = None  # type: ignore[valid-type]
    iterations: option_of(Experiment, "iterations") = None  # type: ignore[valid-type]
    limit: option_of(Experiment, "limit") = None  # type: ignore[valid-type]
    data_dir: DataDir = None

    def crossed(self, context: typer.Context, study: str, model: Given[ModelOptions]) -> Crossing:
        """The study with these values and options of every model.

        Raises InputError as `open_study` and `cross_study`, and for each wrong value.

        Environment variables and config files do not change what a study measures: of them, only the data directory
        is used.
        """
        from deepthink_cli.plugins.study.crossing import cross_study
        from deepthink_cli.plugins.study.study import open_study

        typed = {each for each in type(self).model_fields if is_typed(context, each)} | {"data_dir"}
        given = {name: value for name, value in self.model_dump().items() if name in typed and value is not None}
        given.pop("scale", None)
        checked = Experiment.checked(
            **{each: given[each] for each in ("seeds", "iterations", "limit") if each in given}
        )
        values: dict[str, Any] = {
            **given,
            "model": [each.strip() for each in str(given.get("model")).split(",")],
            "seeds": list(checked.seeds),
            "iterations": checked.iterations,
            "limit": checked.limit,
            "data_dir": str(self.data_dir),
        }
        fields, replaced = {"model": "models", "task": "tasks"}, {}
        for name, value in given.items():
            words = flag(name, ",".join(map(str, value)) if isinstance(value, list) else str(value))
            replaced[fields.get(name, name)] = words, values[name]
        opened = open_study(study, self.scale, replaced)
        models = tuple(_computed(context, model, each) for each in opened.study.models)
        return cross_study(replace(opened, study=opened.study.model_copy(update={"models": models})))


def _computed(context: typer.Context, arguments: Given[ModelOptions], model: ModelOptions) -> ModelOptions:
    """A model of the study with the options of the command line; options from elsewhere fill the study's gaps."""
    checked = arguments.checked()
    names = list(arguments.values)
    sources = {name: came_from(context, name) for name in names}
    typed = {name: getattr(checked, name) for name, source in sources.items() if source == "COMMANDLINE"}
    defaults = {name: getattr(checked, name) for name, source in sources.items() if source not in ("DEFAULT", None)}
    return ModelOptions.checked(**{**defaults, **model.model_dump(exclude_unset=True), **typed})


@grouped
def list_studies(*, common: Annotated[CommonArguments, Without("quiet", "verbose")]) -> None:
    """List the studies that come with the package."""
    from deepthink_cli.plugins.study.study import open_study, packaged

    studies = {name: open_study(name).study for name in packaged()}
    if common.as_json:
        write_json([{"study": name, "title": each.title, "source": each.source} for name, each in studies.items()])
        return
    rows = [[name, each.title, ", ".join(each.scales)] for name, each in studies.items()]
    report(table("study", "title", "scales", rows=rows, left=3))


@grouped
def show_study(study: StudyName, *, common: Annotated[CommonArguments, Without("quiet", "verbose")]) -> None:
    """Print a study as YAML, as a start for your own; with --json, its fields with their defaults."""
    from deepthink_cli.plugins.study.study import open_study, study_path

    if common.as_json:
        write_json(open_study(study).study.model_dump(mode="json"))
        return
    sys.stdout.write(study_path(study).read_text(encoding="utf-8"))
    sys.stdout.flush()


NoProbe = Annotated[bool, Flag(OUTPUT, "Load no model; no estimate of the time.", variable=False)]


@about(first="output no_probe scale model task seeds iterations limit json")
@grouped
def plan_study(
    context: typer.Context,
    study: StudyName,
    output: StudyOutput = None,
    no_probe: NoProbe = False,
    *,
    replaced: StudyArguments,
    model: Annotated[Given[ModelOptions], Without(*UNNAMED)],
    common: CommonArguments,
) -> None:
    """Check a study, and show what it takes: for each model its rows, inputs, tokens and time. Downloads nothing.

    Every mistake, also of its scales, is named by file and line. Times are measured by a short probe where the weights
    are on this machine.
    """
    from deepthink_cli.plugins.study.crossing import count, cross_study, plan_models
    from deepthink_cli.plugins.study.study import open_study

    problems = Problems()
    crossing = problems.tried(replaced.crossed, context, study, model)
    for scale in () if replaced.scale else open_study(study).study.scales:
        problems.tried(cross_study, open_study(study, scale))
    problems.raise_any()
    opened = crossing.opened
    folder = output or Path("runs") / opened.study.name
    with Show(common) as tell:
        plans = list(plan_models(crossing, folder, not no_probe, tell))
    values: dict[str, Any] = {
        "study": opened.study.name,
        "file": str(opened.path),
        "models": list(dict.fromkeys(run.models[0].model for run in crossing.runs)),
        "tasks": [task.name for each in crossing.tasks.values() for task in each],
        "combinations": sum(map(count, crossing.boxes)),  # a file of several tasks counts once
        "runs": len(crossing.boxes),
    }
    if common.as_json:
        plan = [
            {"model": name, "runs": runs, **asdict(estimate), "rows": estimate.rows + estimate.written}
            for name, runs, estimate in plans
        ]
        write_json({**values, "out": str(folder), "plan": plan})
        return
    title, runs, names = opened.study.title, len(crossing.boxes), values["tasks"]
    shown = ", ".join([*names[:8], *(["..."] if len(names) > 8 else [])])
    counted = f"{values['combinations']} combinations in {runs} run{'s'[: runs != 1]}"
    report(f"study    {values['study']}{f': {title}' if title else ''}", f"tasks    {len(names)}: {shown}")
    report(f"work     {counted} of {len(plans)} model{'s'[: len(plans) != 1]}")
    report(f"folder   {folder} (not written: this is a plan)", "")
    rows = [[name, *_cells(estimate)] for name, _, estimate in plans]
    report(table("model", "rows", "exist", "inputs", "tokens", "time", rows=rows))
    for name, _, estimate in plans:
        if estimate.reason is not None:
            note(f"{name}: {estimate.reason}", common.quiet)


def _cells(estimate: Estimate) -> list[str]:
    numbers = (estimate.rows + estimate.written, estimate.written, estimate.inputs, estimate.tokens)
    written = ("" if number is None else f"{number:,}" for number in numbers)
    return [*written, "" if estimate.seconds is None else duration(estimate.seconds)]


@about(first="output scale model task seeds iterations limit data_dir samples workers")
@grouped
def run_study(
    context: typer.Context,
    study: StudyName,
    output: StudyOutput = None,
    samples: Samples = False,
    *,
    watching: Given[StudyObservers],
    replaced: StudyArguments,
    model: Annotated[Given[ModelOptions], Without(*UNNAMED)],
    divided: ExecutorArguments,
    common: CommonArguments,
) -> None:
    """Do the runs of a study, model by model, into one folder; an interrupted study is continued."""
    from deepthink_cli.outputs import check_run_apart
    from deepthink_cli.plugins.study.study import Origin

    problems, observers, reads = Problems(), Watching("run", watching.changed), list[str | Path]()
    with problems.collected():
        crossing = replaced.crossed(context, study, model)
        studied = crossing.opened.study
        data_dir = None if studied.data_dir is None else Path(studied.data_dir)
        tasks = list(crossing.tasks)
        reads += read_by(crossing.opened.path, studied.demos, task=tasks, data_dir=data_dir, config=common.config)
        for options in studied.models:
            reads += read_by(model=options.model)
    machines = problems.tried(Machines.checked, divided)
    problems.tried(observers.check, reads)
    problems.raise_any()
    folder = output or Path("runs") / crossing.opened.study.name
    check_run_apart(machines.folder(folder), reads)
    begin = Origin.of(study, replaced.scale).write
    do_runs(crossing.runs, machines, folder, samples, observers, common, crossing.find, begin)


studies = Program(help=__doc__, no_args_is_help=True)
about("study run example --scale small")(studies)
studies.command("list", epilog="Example: deepthink study list")(list_studies)
studies.command("show", epilog="Example: deepthink study show example > mine.yaml")(show_study)
studies.command("plan", epilog="Example: deepthink study plan example --json")(plan_study)
studies.command("run", epilog="Example: deepthink study run example --scale small -o runs/example")(run_study)
