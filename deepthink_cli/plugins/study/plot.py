"""`deepthink plot`: draw accuracy, or its difference from T = 1, over T of one or several runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.report import AllTasks, Runs, Where
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.registry import loaded
from deepthink_cli.report.registry import FORMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from deepthink_cli.plugins.study.study import Study
    from deepthink_cli.report.job_results import JobResults
    from deepthink_cli.report.registry import FigureOptions

TEX = ".tex"
_TEX = " or ".join(name for name, each in FORMS.items() if each.latex is not None)


class PlotArguments(Options):
    """Options of a figure: its rows, its form, and its files."""

    all_tasks: AllTasks = False
    where: Where = None
    difference: Annotated[
        bool,
        Flag(
            OUTPUT,
            "Draw accuracy less that of T = 1 of the same seed instead, with the 95 % interval of the mean.",
            variable=False,
        ),
    ] = False
    methods: Annotated[
        bool,
        Flag(
            OUTPUT,
            "Draw a dot for each method instead: its accuracy less the first one's, with the 95 % interval of the "
            "mean.",
            variable=False,
        ),
    ] = False
    output: Annotated[
        list[Path] | None,
        Flag(
            OUTPUT,
            f"A .png, .svg or .pdf file{_TEX and f', but .tex for the {_TEX} of a study'}; may be given several times. "
            f"Default: .png and .svg files in the (first) run's folder{_TEX and ', or figure.tex'}.",
            "FILE",
            short="-o",
            variable=False,
        ),
    ] = None


@about("plot runs/classic -o curve.pdf")
@grouped
def plot(runs: Runs, *, chosen: PlotArguments, common: Annotated[CommonArguments, Without("verbose")]) -> None:
    """Draw accuracy over T of runs or of a study.

    Each task, or the mean, has a panel; a study may have a figure of its own. The dotted line is plain in-context
    learning (T = 1). Bands of accuracy show how seeds differ, not what thinking changes: see --difference.
    """
    from deepthink_cli.experiments.results import FILE
    from deepthink_cli.io.atomic import replacing, writing
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.plugins.study.figures import check_suffix, save
    from deepthink_cli.report.figures import METADATA
    from deepthink_cli.report.footnotes import footnotes
    from deepthink_cli.report.job_results import read_jobs

    study = _study_of(runs, common.quiet)
    asked = chosen.all_tasks or chosen.difference or chosen.methods  # for another figure than the study's own
    output, form = chosen.output, None if study is None or asked else study.figure
    latex = None if form is None else FORMS[form.kind].latex
    problems, read = Problems(), read_by(*(run / FILE for run in runs), config=common.config)
    for file in output or []:
        with problems.collected():
            if latex is None:
                check_suffix(file)
            elif file.suffix.lower() != TEX:
                raise InputError.of("output", file, "the study has a table; end the name in .tex")
            check_apart(file, read, runs=runs, figures=(*METADATA, TEX))
    jobs = problems.tried(read_jobs, runs, chosen.where or ())
    if chosen.methods and chosen.difference:
        problems.add("--methods and --difference: two figures; give one of them")
    problems.raise_any()
    kinds = {"figure": form is not None, "methods": chosen.methods, "difference": chosen.difference, "accuracy": True}
    name = next(name for name, is_chosen in kinds.items() if is_chosen)
    files = output or [runs[0] / f"{name}{suffix}" for suffix in ((TEX,) if latex is not None else (".png", ".svg"))]
    for file in files:
        check_apart(file, read, runs=runs, figures=(*METADATA, TEX))
    with ExitStack() as stack:
        if form is not None and study is not None and latex is not None:
            text, shown = loaded(latex)(form, jobs, study.name, study.title or study.name), [form.kind]
            for file in dict.fromkeys(files):
                stack.enter_context(writing(file)).write(text)
        else:
            drawn, shown = _drawing(runs, jobs, chosen, form)
            save(drawn, {stack.enter_context(replacing(file)): file.suffix.lower() for file in dict.fromkeys(files)})
    for line in footnotes(jobs):
        note(line, common.quiet)
    for file in files:
        note(f"wrote {file}", common.quiet or common.as_json)
    if common.as_json:
        write_json({"files": list(map(str, files)), "panels": shown})


def _study_of(runs: Sequence[Path], quiet: bool) -> Study | None:
    """The study that was run into these folders; None for runs.

    Folders whose study cannot be read, because its file was moved or changed, count as runs, with a note.
    """
    from deepthink_cli.plugins.study.study import open_study, origin_of

    origin = origin_of(runs)
    if origin is None:
        return None
    try:
        return open_study(origin.study, origin.scale).study
    except InputError as error:
        note(f"{runs[0]}: taken as a run, because its study cannot be read: {error.messages[0]}", quiet)
        return None


def _drawing(
    runs: Sequence[Path], jobs: Sequence[JobResults], options: PlotArguments, form: FigureOptions | None
) -> tuple[Callable[[], Figure], list[str]]:
    """The function that draws the figure, and its panels; raises InputError if there is nothing to draw."""
    from deepthink_cli.plugins.study import figures
    from deepthink_cli.report.figures import COLOURS, MARKERS, PAGE, panels, with_gains
    from deepthink_cli.report.footnotes import footnotes

    if form is not None:
        draw = FORMS[form.kind].draw
        assert draw is not None
        return partial(loaded(draw), form, jobs), [form.kind]
    if options.methods:
        methods = figures.methods_of(jobs)
        first, blocks = next(iter(methods.items()))
        axis = f"accuracy less that of {first} (points); {len(blocks)} pairs of a task and a seed, 95 % intervals"
        looks = {"": (COLOURS[0], MARKERS[0])}
        return partial(figures.dots_figure, {"": figures.differences_from_first(methods)}, axis, looks, PAGE), []
    shown = panels(jobs, options.all_tasks)
    if options.difference:
        shown = with_gains(shown)
    if not shown:
        needed = "at every T, T = 1 included" if options.difference else "at every T"
        raise InputError(f"RUN {runs[0]}: no seed has rows {needed}", *footnotes(jobs))
    view = figures.DIFFERENCE if options.difference else figures.ACCURACY
    return partial(figures.curves, shown, view), [panel.name for panel in shown]
