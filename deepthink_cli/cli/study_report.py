"""`deepthink study report` and `plot`: the tables and the figure of a study, from the folder of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.console import note
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import DATA, CommonArguments
from deepthink_cli.cli.plot import PlotArguments, write_plot
from deepthink_cli.cli.report import ReportArguments, write_report
from deepthink_cli.cli.study_options import Scale, StudyName, folder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepthink_cli.experiments.study.files import OpenedStudy

Folders = Annotated[
    list[Path] | None,
    typer.Option(
        "--from",
        metavar="FOLDER",
        rich_help_panel=DATA,
        show_default=False,
        help="Folder of the study's rows; give it several times for several. Default: runs/NAME of the study.",
    ),
]


@grouped
def report_study(
    study: StudyName,
    folders: Folders = None,
    scale: Scale = None,
    *,
    chosen: ReportArguments,
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Print the tables of a study, also of one that is not finished."""
    opened, runs = _opened(study, folders, scale)
    named = opened.study.title or opened.study.name
    write_report(runs, f"{named} ({', '.join(map(str, runs))})", chosen, common)
    _tell_of_missing(opened, runs, common.quiet)


@grouped
def plot_study(
    study: StudyName,
    folders: Folders = None,
    scale: Scale = None,
    *,
    chosen: PlotArguments,
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Draw the figure of a study, also of one that is not finished."""
    opened, runs = _opened(study, folders, scale)
    write_plot(runs, chosen, common, opened.study.figure)
    _tell_of_missing(opened, runs, common.quiet)


def _opened(name: str, folders: list[Path] | None, scale: str | None) -> tuple[OpenedStudy, list[Path]]:
    from deepthink_cli.experiments.study.files import open_study

    opened = open_study(name, scale)
    return opened, folders or [folder_of(None, opened)]


def _tell_of_missing(opened: OpenedStudy, runs: Sequence[Path], quiet: bool) -> None:
    """Note that rows of the study are missing, counted by the definitions of its tasks."""
    from deepthink_cli.experiments.folder import found_in
    from deepthink_cli.experiments.shards import with_shards
    from deepthink_cli.experiments.study.crossing import cross, requests_of
    from deepthink_cli.experiments.study.work import rows_of

    expected = sum(rows_of(request.plan()) for request in requests_of(cross(opened)))
    written = sum(len(found_in(run)) for run in with_shards(runs))
    if written < expected:
        note(
            f"{opened.study.name}: {written:,} of {expected:,} rows are there; deepthink study run continues it", quiet
        )
