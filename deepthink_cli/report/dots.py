"""Draw methods as dots with intervals, a line for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.report.figures import COLOURS, GREY, LEGEND, MARKERS, PAGE, save
from deepthink_cli.report.significance import Paired

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def draw_dots(dots: Sequence[Dot], axis: str, files: Mapping[Path, str]) -> None:
    """Draw methods and write them to every file, in the format of the suffix that `files` gives it."""
    save(lambda: dots_figure({"": dots}, axis, {"": (COLOURS[0], MARKERS[0])}, PAGE), files)


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
