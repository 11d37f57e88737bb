"""`deepthink study`: list, show and validate studies, and report and draw their rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, report, table, write_json
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.output_options import Watching
from deepthink_cli.cli.plot import PlotArguments, write_plot
from deepthink_cli.cli.report import Reporting, ReportObservers, write_report
from deepthink_cli.cli.study_folders import study_of
from deepthink_cli.cli.study_options import Scale, StudyArguments, StudyName, folder_of
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.options import DATA, Flag

if TYPE_CHECKING:
    from deepthink_cli.experiments.crossing import Crossing
    from deepthink_cli.experiments.study import OpenedStudy


@grouped
def list_studies(*, common: Annotated[CommonArguments, Without("quiet", "verbose")]) -> None:
    """List the studies that come with the package."""
    from deepthink_cli.experiments.study import open_study, packaged

    studies = {name: open_study(name).study for name in packaged()}
    if common.as_json:
        write_json([{"study": name, "title": each.title, "source": each.source} for name, each in studies.items()])
        return
    rows = [[name, each.title, ", ".join(each.scales)] for name, each in studies.items()]
    report(table("study", "title", "scales", rows=rows, left=3))


@grouped
def show_study(study: StudyName, *, common: Annotated[CommonArguments, Without("quiet", "verbose")]) -> None:
    """Print a study as YAML, as a start for your own; with --json, its fields with their defaults."""
    from deepthink_cli.experiments.study import open_study, study_path

    if common.as_json:
        write_json(open_study(study).study.model_dump(mode="json"))
        return
    sys.stdout.write(study_path(study).read_text(encoding="utf-8"))
    sys.stdout.flush()


@grouped
def validate_study(
    context: typer.Context,
    study: StudyName,
    *,
    replaced: StudyArguments,
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Check a study and each of its scales without opening a model; every mistake is named by file and line."""
    from deepthink_cli.experiments.crossing import cross_study
    from deepthink_cli.experiments.study import open_study

    problems = Problems()
    opened = replaced.opened(context, study)
    scales = [] if replaced.scale else list(opened.study.scales)
    crossing = problems.tried(cross_study, opened)
    for scale in scales:
        with problems.collected():
            cross_study(open_study(study, scale))
    problems.raise_any()
    values = described(opened, crossing)
    if common.as_json:
        write_json(values)
        return
    models = len(values["models"])
    counted = f"{values['combinations']} combinations in {values['runs']} runs of {models} model{'s'[: models != 1]}"
    note(f"{opened.path}: {values['study']} is a study: {counted}", common.quiet)
    if scales:
        note(f"{opened.path}: its scales are valid: {', '.join(scales)}", common.quiet)


def described(opened: OpenedStudy, crossing: Crossing) -> dict[str, Any]:
    """A crossed study as JSON values."""
    return {
        "study": opened.study.name,
        "file": str(opened.path),
        "models": list(dict.fromkeys(run.models[0].model for run in crossing.runs)),
        "tasks": [task.name for each in crossing.tasks.values() for task in each],
        "combinations": crossing.combinations,
        "runs": len(crossing.boxes),
    }


Folders = Annotated[
    list[Path] | None,
    Flag(
        DATA,
        "Folder of the study's rows; give it several times for several. Default: runs/NAME of the study.",
        "FOLDER",
        variable=False,
    ),
]


@about(first="runs scale at published all_tasks where output_format output html json")
@grouped
def report_study(
    study: StudyName,
    runs: Folders = None,
    scale: Scale = None,
    *,
    chosen: Reporting,
    watching: Given[ReportObservers],
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Print the tables of a study, also of one that is not finished; report FOLDER does the same."""
    opened, folders = _opened(study, runs, scale, common.quiet)
    write_report(folders, opened, chosen, Watching("report", watching), common)


@grouped
def plot_study(
    study: StudyName,
    runs: Folders = None,
    scale: Scale = None,
    *,
    chosen: PlotArguments,
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Draw the figure of a study, also of one that is not finished; plot FOLDER does the same."""
    opened, folders = _opened(study, runs, scale, common.quiet)
    write_plot(folders, opened, chosen, common)


def _opened(name: str, folders: list[Path] | None, scale: str | None, quiet: bool) -> tuple[OpenedStudy, list[Path]]:
    """The study of this name, or of this folder, and the folders of its rows."""
    from deepthink_cli.experiments.study import open_study, packaged

    if folders is None and Path(name).is_dir() and name not in packaged():
        runs = [Path(name)]
        found = study_of(runs, quiet)
        if found is None or scale is not None:
            raise InputError(f"{name}: is a folder; name its study, as in deepthink study report example --runs {name}")
        return found, runs
    opened = open_study(name, scale)
    return opened, folders or [folder_of(None, opened)]
