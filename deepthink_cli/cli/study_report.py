"""`deepthink study report` and `plot`: the tables and the figure of a study, from the folder of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.plot import PlotArguments, write_plot
from deepthink_cli.cli.report import ReportArguments, write_report
from deepthink_cli.cli.study_folders import study_of
from deepthink_cli.cli.study_options import Scale, StudyName, folder_of
from deepthink_cli.errors import InputError
from deepthink_cli.options import DATA

if TYPE_CHECKING:
    from deepthink_cli.experiments.study import OpenedStudy

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
    """Print the tables of a study, also of one that is not finished; report FOLDER does the same."""
    opened, runs = _opened(study, folders, scale, common.quiet)
    write_report(runs, opened, chosen, common)


@grouped
def plot_study(
    study: StudyName,
    folders: Folders = None,
    scale: Scale = None,
    *,
    chosen: PlotArguments,
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Draw the figure of a study, also of one that is not finished; plot FOLDER does the same."""
    opened, runs = _opened(study, folders, scale, common.quiet)
    write_plot(runs, opened, chosen, common)


def _opened(name: str, folders: list[Path] | None, scale: str | None, quiet: bool) -> tuple[OpenedStudy, list[Path]]:
    """The study of this name, or of this folder, and the folders of its rows."""
    from deepthink_cli.experiments.study import open_study, packaged

    if folders is None and Path(name).is_dir() and name not in packaged():
        runs = [Path(name)]
        found = study_of(runs, quiet)
        if found is None or scale is not None:
            raise InputError(f"{name}: is a folder; name its study, as in deepthink study report example --from {name}")
        return found, runs
    opened = open_study(name, scale)
    return opened, folders or [folder_of(None, opened)]
