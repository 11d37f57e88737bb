"""Draw accuracy, or its difference from T = 1, over T: a panel for each task or mean, a line for each arm.

Or draw methods on the same tasks and seeds: a dot for each, its accuracy less that of the first.

Sized for print, in 7-point type: two panels side by side fit a text column, four fit a page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import Result, grouped
from deepthink_cli.plugins.study.registry import CurvesOptions
from deepthink_cli.report.arms import COMPARED, Arm, varying
from deepthink_cli.report.figures import (
    COLOURS,
    COLUMN,
    GREY,
    LEGEND,
    MARKERS,
    METADATA,
    PAGE,
    STYLE,
    Curve,
    Panel,
    panels,
    with_gains,
)
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds, on_common_inputs
from deepthink_cli.report.significance import Paired
from deepthink_cli.report.tables import TaskScore, in_order, scores_of, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


FEW = 6  # the most panels in a column
HEIGHT = 1.5  # size of a panel, in inches
DPI = 300
ENTRY, LETTER = 0.45, 0.06  # inches width of a legend's line sample and of one character
TITLE = 26  # characters that fit a panel's width


@dataclass(frozen=True)
class View:
    """The vertical axis: its label, the meaning of a band, and the mean and the band of a curve by T, in [0, 1]."""

    axis: str
    band: str
    points: Callable[[Curve], Mapping[int, tuple[float, tuple[float, float] | None]]]


def _accuracies(curve: Curve) -> dict[int, tuple[float, tuple[float, float] | None]]:
    return {
        t: (spread.mean, None if spread.sd is None else (spread.mean - spread.sd, spread.mean + spread.sd))
        for t, spread in curve.points.items()
    }


def _differences(curve: Curve) -> dict[int, tuple[float, tuple[float, float] | None]]:
    gains = {t: (gain.spread.mean, gain.ci95) for t, gain in curve.gains.items()}
    return gains | ({1: (0.0, (0.0, 0.0))} if gains.get(1, (None,))[0] == 0 else {})  # zero by definition, not measured


ACCURACY = View("accuracy (%)", "± 1 standard deviation", _accuracies)
DIFFERENCE = View("accuracy less T = 1 (points)", "95 % interval", _differences)


def check_suffix(path: Path) -> None:
    """Raise InputError for a file name without a figure's suffix."""
    if path.suffix.lower() not in METADATA:
        raise InputError.of(
            "output", path, f"unknown kind of figure {path.suffix!r}; end the name in .png, .svg or .pdf"
        )


def curves_of_study(figure: CurvesOptions, jobs: Sequence[JobResults]) -> Figure:
    """The curves of a study; raises InputError if it has no rows to draw yet."""
    shown = with_gains(panels(jobs)) if figure.difference else panels(jobs)
    if not shown:
        raise InputError("figure: no seed has rows at every T, T = 1 included; continue the study")
    return curves(shown, DIFFERENCE if figure.difference else ACCURACY)


def save(drawn: Callable[[], Figure], files: Mapping[Path, str], dpi: int = DPI) -> None:
    """Draw a figure once in the style of all figures and write it to every file, in the format of its suffix.

    The same data give the same bytes, independently of the user's matplotlib settings.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = drawn()
        FigureCanvasAgg(figure)
        for path, suffix in files.items():
            figure.savefig(path, format=suffix.removeprefix("."), dpi=dpi, metadata=METADATA[suffix])


def curves(panels: Sequence[Panel], view: View = ACCURACY) -> Figure:
    """The figure of panels; it is drawn by `save`."""
    from matplotlib.figure import Figure

    columns = 1 if len(panels) == 1 else 2 if len(panels) <= FEW else 4
    width, height = (COLUMN, HEIGHT) if columns == 2 else (PAGE, HEIGHT) if columns == 4 else (COLUMN, 1.3 * HEIGHT)
    rows = -(-len(panels) // columns)
    arms = list(dict.fromkeys(curve.arm for panel in panels for curve in panel.curves))
    looks = {arm: (COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)]) for n, arm in enumerate(arms)}
    handles = _handles(panels, looks, view)
    longest = max(len(str(handle.get_label())) for handle in handles)
    abreast = max(1, min(columns, int(width / (ENTRY + LETTER * longest))))
    height = rows * height + 0.14 * -(-len(handles) // abreast) + 0.5
    figure = Figure(figsize=(width, height), layout="constrained")
    for number, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(rows, columns, number), panel, looks, view)
    figure.legend(handles=handles, ncols=abreast, **LEGEND)
    figure.supylabel(view.axis, fontsize=7.5)
    counts = {spread.n for panel in panels for curve in panel.curves for spread in curve.points.values()}
    about = "one seed" if max(counts) == 1 else f"mean of {span(counts)} seeds, band: {view.band}"
    figure.supxlabel(f"iterations T\n{about}", fontsize=7.5)
    return figure


def _draw_panel(axes: Axes, panel: Panel, looks: Mapping[Arm, tuple[str, str]], view: View) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(_title(panel), pad=3)
    if view is DIFFERENCE:
        axes.axhline(0, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    else:
        _draw_levels(axes, panel, looks)
    for curve in panel.curves:
        _draw_curve(axes, view.points(curve), curve.part == "dev", *looks[curve.arm])
    last = max(max(curve.points) for curve in panel.curves)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.set_xlim(1 - 0.04 * last, last + 0.04 * last)


def _draw_levels(axes: Axes, panel: Panel, looks: Mapping[Arm, tuple[str, str]]) -> None:
    """The accuracies of the baselines and of the most frequent label."""
    plain = {
        curve.arm: 100 * fmean(curve.plain)
        for curve in panel.curves
        if curve.part == "test" and curve.plain is not None
    }
    for arm, height in {round(height, 6): (arm, height) for arm, height in plain.items()}.values():
        colour = GREY if len({round(height, 6) for height in plain.values()}) == 1 else looks[arm][0]
        axes.axhline(height, color=colour, linewidth=0.8, linestyle=":", zorder=1)
    if panel.majority is not None:
        axes.axhline(100 * panel.majority, color=GREY, linewidth=0.7, linestyle="-.", zorder=1)


def _title(panel: Panel) -> str:
    """The panel's name in lines that fit its width."""
    name = textwrap.fill(panel.name.replace("_", " "), TITLE, break_on_hyphens=False)
    if not panel.is_mean:
        return name
    mean = f"(mean of {span({curve.tasks for curve in panel.curves})})"
    return name + (" " if len(name) + len(mean) < TITLE else "\n") + mean


def _draw_curve(
    axes: Axes, points: Mapping[int, tuple[float, tuple[float, float] | None]], is_dev: bool, colour: str, marker: str
) -> None:
    iterations = list(points)
    middle = [100 * mean for mean, _ in points.values()]
    if is_dev:
        axes.plot(iterations, middle, color=colour, linestyle=(0, (4, 2)), linewidth=0.8, zorder=2)
        return
    axes.plot(iterations, middle, color=colour, marker=marker, zorder=3)
    bands = [band or (math.nan, math.nan) for _, band in points.values()]
    if any(low < high for low, high in bands):
        low, high = [100 * band[0] for band in bands], [100 * band[1] for band in bands]
        axes.fill_between(iterations, low, high, color=colour, alpha=0.15, linewidth=0, zorder=1)


def _handles(panels: Sequence[Panel], looks: Mapping[Arm, tuple[str, str]], view: View) -> list[Line2D]:
    from matplotlib.lines import Line2D

    names = varying(list(looks)) or ["model", "eta"]
    handles = [
        Line2D([], [], color=colour, marker=marker, label=arm.label(names, short=True))
        for arm, (colour, marker) in looks.items()
    ]
    if any(curve.part == "dev" for panel in panels for curve in panel.curves):
        handles.append(Line2D([], [], color=GREY, linewidth=0.8, linestyle=(0, (4, 2)), label="on dev rows"))
    level = "T = 1 (plain ICL)" if all(arm.baseline_is_plain for arm in looks) else "T = 1 of the same labels"
    handles.append(Line2D([], [], color=GREY, linewidth=0.8, linestyle=":", label=level))
    if view is ACCURACY and any(panel.majority is not None for panel in panels):
        handles.append(Line2D([], [], color=GREY, linewidth=0.7, linestyle="-.", label="majority class"))
    return handles


Block = tuple[str, Seed]


def methods_of(jobs: Sequence[JobResults], iteration: int | None = None) -> dict[str, list[float]]:
    """The accuracies of every arm at the reported T, and of every baseline, by method and block; random ones first.

    A block is a pair of a task and a seed that all methods have, with their common inputs. Seeds with the same
    demonstrations are one. Raises InputError for arms that differ only in the reading, or cannot be compared.
    """
    if not set(varying([job.arm for job in jobs])) & set(COMPARED):
        ways = "deepthink run --demos-by, --technique or --calibrate"
        raise InputError(f"there is one method only; compare several with {ways}")
    scores = scores_of(jobs, iteration)
    by_arm = grouped(scores, lambda each: each.arm)
    arms = sorted(in_order(by_arm, jobs), key=lambda arm: arm.sampling != "random")
    names = varying(arms)
    results: dict[str, dict[Block, Result]] = {}
    digests: dict[Block, list[str]] = {}
    for arm in arms:
        for each in by_arm[arm]:
            block = each.task, each.seed
            digests.setdefault(block, []).append(each.result.demonstrations_sha256)
            for name, result in _methods(names, each):
                results.setdefault(name, {})[block] = result
    common = set.intersection(*(set(blocks) for blocks in results.values())) if results else set()
    ordered = [block for block in next(iter(results.values()), {}) if block in common]
    ordered = different_seeds(ordered, lambda block: (block[0], *digests[block]))
    answers = [on_common_inputs([blocks[block] for blocks in results.values()]) for block in ordered]
    if not answers:
        raise InputError("no pair of a task and a seed has rows of all methods")
    known = [[sum(right) / len(right) for right in of_block] for of_block in answers]
    return {name: [accuracies[place] for accuracies in known] for place, name in enumerate(results)}


def _methods(names: Sequence[str], score: TaskScore) -> Iterator[tuple[str, Result]]:
    """The names of an arm's baseline, if any, and of the arm, with their results on one task."""
    arm = score.arm
    if score.baseline is not None:
        yield ", ".join(filter(None, [arm.baseline_label(names, short=True), "T = 1"])), score.baseline
    last = [] if arm.is_read_once else ["T"]
    yield ", ".join(filter(None, [arm.label(names, short=True), *last])), score.result


LINE = 0.155  # inches between two methods
AROUND = 0.9  # inches of titles and of the axis


@dataclass(frozen=True)
class Dot:
    """A method's difference and its interval, in [-1, 1]; dots of a group share a colour and a line in the legend."""

    name: str
    mean: float
    interval: tuple[float, float] | None
    group: str = ""


def differences_from_first(accuracies: Mapping[str, Sequence[float]]) -> list[Dot]:
    """Every other method less the first one, on the same blocks, with Student's 95 % interval over blocks."""
    first, *others = accuracies
    pairs = {name: Paired.of(accuracies[first], accuracies[name]) for name in others}
    return [Dot(name, pair.spread.mean, pair.ci95) for name, pair in pairs.items()]


def dots_figure(
    panels: Mapping[str, Sequence[Dot]],
    axis: str,
    looks: Mapping[str, tuple[str, str]],
    width: float,
    one_scale: bool = True,
) -> Figure:
    """Panels with the same methods side by side; `looks` are the colour and the marker of each group of dots."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    dots = next(iter(panels.values()))
    groups = dict.fromkeys(dot.group for dot in dots)
    figure = Figure(figsize=(width, AROUND + LINE * len(dots)), layout="constrained")
    for number, (title, of_panel) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), number + 1, sharex=figure.axes[0] if number and one_scale else None)
        axes.set_title(title, pad=3)
        axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
        for place, dot in enumerate(of_panel):
            colour, marker = looks[dot.group]
            if dot.interval:
                axes.plot([100 * end for end in dot.interval], [place] * 2, color=colour, linewidth=1.2)
            axes.plot(100 * dot.mean, place, marker, color=colour, markersize=3)
        axes.set_yticks(range(len(of_panel)), ["" if number else dot.name for dot in of_panel])
        axes.set_ylim(len(of_panel) - 0.4, -0.6)
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    figure.supxlabel(axis, fontsize=7.5)
    if any(groups):
        handles = [
            Line2D([], [], color=colour, marker=marker, linestyle="", label=group)
            for group, (colour, marker) in ((group, looks[group]) for group in groups)
        ]
        figure.legend(handles=handles, ncols=max(1, int(width / 1.5)), **{**LEGEND, "handlelength": 1.0})
    return figure
