"""`deepthink study plan` and `run`: the cost of a study, and its runs in one folder that can be continued."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, duration, note, report, table, write_json
from deepthink_cli.cli.executor_options import ExecutorArguments, Machines
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.output_options import Watching, observed
from deepthink_cli.cli.run import Samples, report_summary
from deepthink_cli.cli.run_progress import RunProgress
from deepthink_cli.cli.study import described
from deepthink_cli.cli.study_options import UNNAMED, StudyArguments, StudyName, StudyOutput, folder_of
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import Problems
from deepthink_cli.events import telling_all
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.experiments.crossing import Crossing
    from deepthink_cli.experiments.estimate import Estimate
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
    replaced: StudyArguments,
    model: Annotated[Given[ModelOptions], Without(*UNNAMED)],
    divided: ExecutorArguments,
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
    machines = problems.tried(Machines.checked, divided)
    problems.tried(observers.check, reads)
    problems.raise_any()
    folder = folder_of(output, opened)
    written = machines.folder(folder)
    check_run_apart(written, reads)
    cache = default_folder()
    with Show(common) as tell, machines.executor(model.device, cache) as executor:
        jobs = prepare(crossing, written, tell)
        if machines.queued(folder, common.quiet):
            return
        Origin.of(study, replaced.scale).write(written)
        told = telling_all(tell, RunProgress(common.quiet or common.as_json), observers.start(tell))
        summary = execute(jobs, written, samples, told, Store(cache), executor, machines.shard)
    report_summary(summary, common, f"deepthink report {folder}")


def _read(opened: OpenedStudy, crossing: Crossing, config: Path | None) -> list[str | Path]:
    """The files and folders that the study reads."""
    data_dir = None if opened.study.data_dir is None else Path(opened.study.data_dir)
    paths = read_by(opened.path, opened.study.demos, task=list(crossing.tasks), data_dir=data_dir, config=config)
    for options in opened.study.models:
        paths += read_by(model=options.model)
    return paths


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
    """Show what a study takes: for each model its rows, those that exist, inputs, tokens and time. Downloads nothing.

    Times are measured by a short probe where the weights are on this machine.
    """
    from deepthink_cli.experiments.estimate import plan_models

    opened, crossing = replaced.crossed(context, study, model)
    folder = folder_of(output, opened)
    with Show(common) as tell:
        plans = list(plan_models(crossing, folder, not no_probe, tell))
    values = described(opened, crossing)
    if common.as_json:
        plan = [{"model": name, "runs": runs, **_as_json(estimate)} for name, runs, estimate in plans]
        write_json({**values, "out": str(folder), "plan": plan})
        return
    title = opened.study.title
    report(f"study    {values['study']}{f': {title}' if title else ''}", f"tasks    {_first(values['tasks'])}")
    report(f"folder   {folder} (not written: this is a plan)", "")
    rows = [[name, *_cells(estimate)] for name, _, estimate in plans]
    report(table("model", "rows", "exist", "inputs", "tokens", "time", rows=rows))
    for name, _, estimate in plans:
        if estimate.reason is not None:
            counted = "" if estimate.exact else " (rows are counted from the definitions of the tasks)"
            note(f"{name}: {estimate.reason}{counted}", common.quiet)


def _as_json(estimate: Estimate) -> dict[str, Any]:
    values, shown = estimate.as_json(), ("written", "inputs", "tokens", "seconds", "hours", "exact", "reason")
    return {"rows": estimate.rows + estimate.written, **{name: values[name] for name in shown}}


def _cells(estimate: Estimate) -> list[str]:
    numbers = (estimate.rows + estimate.written, estimate.written, estimate.inputs, estimate.tokens)
    return [*(f"{number:,}" for number in numbers), "" if estimate.seconds is None else duration(estimate.seconds)]


def _first(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
