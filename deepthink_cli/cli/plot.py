"""`deepthink plot`: draw accuracy, or its difference from T = 1, over T of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.console import note, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import OUTPUT, CommonArguments
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.report import Runs, Tasks, Where
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.report.curves import Panel
    from deepthink_cli.report.job_results import JobResults
    from deepthink_cli.report.ranking import Ranking

FILES = ("accuracy.png", "accuracy.svg")
DIFFERENCE_FILES = ("difference.png", "difference.svg")
RANK_FILES = ("ranks.png", "ranks.svg")
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="A .png, .svg or .pdf file; may be given several times. "
        "Default: accuracy, difference or ranks .png and .svg in the (first) run's folder.",
    ),
]

Ranks = Annotated[
    bool,
    typer.Option(
        "--ranks",
        rich_help_panel=OUTPUT,
        help="Draw a critical-difference diagram of the methods instead: their mean ranks over tasks and seeds.",
    ),
]

Difference = Annotated[
    bool,
    typer.Option(
        "--difference",
        rich_help_panel=OUTPUT,
        help="Draw accuracy less that of T = 1 of the same seed instead, with the 95 % interval of the mean.",
    ),
]


@dataclass(frozen=True)
class PlotArguments:
    """Which rows are drawn, how, and where the figure is written."""

    tasks: Tasks = False
    where: Where = None
    difference: Difference = False
    ranks: Ranks = False
    output: Outputs = None


@grouped
def plot(runs: Runs, *, chosen: PlotArguments, common: Annotated[CommonArguments, Without("verbose")]) -> None:
    """Draw accuracy over T: a panel for each task or mean, with bands over seeds.

    The dotted line is plain in-context learning (T = 1). Bands of accuracy show how seeds differ, not what thinking
    changes: see --difference.
    """
    write_plot(runs, chosen, common)


def write_plot(runs: Sequence[Path], options: PlotArguments, common: CommonArguments) -> None:
    """Draw runs into the files that the options name; raises InputError for all wrong options."""
    from deepthink_cli.io.atomic import replacing
    from deepthink_cli.report.diagram import draw_ranking
    from deepthink_cli.report.figures import ACCURACY, DIFFERENCE, METADATA, check_suffix, draw
    from deepthink_cli.report.footnotes import footnotes
    from deepthink_cli.report.job_results import read_jobs
    from deepthink_cli.runs.results import FILE
    from deepthink_cli.workflows.outputs import check_apart

    output, difference, ranks = options.output, options.difference, options.ranks
    problems, read = Problems(), read_by(*(run / FILE for run in runs), config=common.config)
    for file in output or []:
        with problems.collected():
            check_suffix(file)
            check_apart(file, read, runs=runs, figures=METADATA)
    with problems.collected():
        jobs = read_jobs(runs, options.where or ())
    with problems.collected():
        names = _names(ranks, difference)
    problems.raise_any()
    files = output or [runs[0] / name for name in names]
    for file in files:
        check_apart(file, read, runs=runs, figures=METADATA)
    shown = [] if ranks else _panels(runs, jobs, options.tasks, difference)
    ranking = _ranking(runs, jobs) if ranks else None
    with ExitStack() as stack:
        targets = {stack.enter_context(replacing(file)): file.suffix.lower() for file in dict.fromkeys(files)}
        if ranking is None:
            draw(shown, targets, DIFFERENCE if difference else ACCURACY)
        else:
            draw_ranking(ranking, targets)
    for line in footnotes(jobs):
        note(line, common.quiet)
    for file in files:
        note(f"wrote {file}", common.quiet or common.json)
    if common.json:
        write_json({"files": list(map(str, files)), "panels": [panel.name for panel in shown]})


def _names(ranks: bool, difference: bool) -> tuple[str, ...]:
    """The names of the files of a figure; raises InputError if two figures are asked for."""
    if ranks and difference:
        raise InputError("--ranks and --difference: two figures; give one of them")
    return RANK_FILES if ranks else DIFFERENCE_FILES if difference else FILES


def _panels(runs: Sequence[Path], jobs: Sequence[JobResults], tasks: bool, difference: bool) -> list[Panel]:
    """What is drawn; raises InputError if there is nothing."""
    from deepthink_cli.report.curves import panels, with_gains
    from deepthink_cli.report.footnotes import footnotes

    shown = panels(jobs, tasks)
    if difference:
        shown = with_gains(shown)
    if not shown:
        needed = "at every T, T = 1 included" if difference else "at every T"
        raise InputError(f"RUN {runs[0]}: no seed has rows {needed}", *footnotes(jobs))
    return shown


def _ranking(runs: Sequence[Path], jobs: Sequence[JobResults]) -> Ranking:
    """The ranking of the runs' methods; raises InputError if there is none."""
    from deepthink_cli.report.ranked import ranking_of

    ranking = ranking_of(jobs)
    if ranking is None or isinstance(ranking, str):
        reason = ranking or "there is one method only; compare several with run --demos-by, --method or --calibrate"
        raise InputError(f"RUN {', '.join(map(str, runs))}: {reason}")
    return ranking
