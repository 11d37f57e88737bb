"""Draw a critical-difference diagram: mean ranks on an axis, bars over methods that do not differ (Demsar 2006)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.report.figures import DPI, GREY, METADATA, PAGE, STYLE
from deepthink_cli.report.ranking import Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 0.17  # inches between the names of two methods
BAR = 0.09  # inches between two bars
AXIS = 0.55  # inches above the first bar


def draw_ranking(ranking: Ranking, files: Mapping[Path, str]) -> None:
    """Draw the diagram once and write it to every file, in the format of the suffix that `files` gives it."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = _figure(ranking)
        FigureCanvasAgg(figure)
        for path, suffix in files.items():
            # Tight: the names of methods may be long.
            figure.savefig(
                path, format=suffix.removeprefix("."), dpi=DPI, metadata=METADATA[suffix], bbox_inches="tight"
            )


def _figure(ranking: Ranking) -> Figure:
    """The best methods are named on the left, the others on the right."""
    from matplotlib.figure import Figure

    methods, bars = len(ranking.ranks), ranking.groups
    half = (methods + 1) // 2
    height = AXIS + BAR * (len(bars) + 1) + LINE * (half + 1) + 0.25
    figure = Figure(figsize=(PAGE, height))
    axes = figure.add_axes((0.3, 0, 0.4, 1))
    axes.set_xlim(1, methods)
    axes.set_ylim(height, 0)
    axes.axis("off")
    _draw_axis(axes, ranking)
    below = AXIS + BAR * (len(bars) + 1)
    for number, group in enumerate(bars, start=1):
        low, high = ranking.ranks[group[0]], ranking.ranks[group[-1]]
        axes.plot([low - 0.05, high + 0.05], [AXIS + BAR * number] * 2, color="black", linewidth=2.2, clip_on=False)
    for place, (name, mean) in enumerate(ranking.ranks.items()):
        is_left = place < half
        y = below + LINE * (place + 1 if is_left else methods - place)
        end = 1 - 0.03 * (methods - 1) if is_left else methods + 0.03 * (methods - 1)
        axes.plot([mean, mean, end], [AXIS, y, y], color=GREY, linewidth=0.7, clip_on=False)
        axes.text(end, y, f" {name} ({mean:.2f}) ", ha="right" if is_left else "left", va="center")
    return figure


def _draw_axis(axes: Axes, ranking: Ranking) -> None:
    methods = len(ranking.ranks)
    axes.plot([1, methods], [AXIS, AXIS], color="black", linewidth=0.8, clip_on=False)
    step = 1 if methods <= 20 else 5
    for tick in range(1, methods + 1, step):
        axes.plot([tick, tick], [AXIS - 0.05, AXIS], color="black", linewidth=0.8, clip_on=False)
        axes.text(tick, AXIS - 0.08, str(tick), ha="center", va="bottom")
    cd = ranking.critical_difference
    axes.plot([1, 1 + cd], [0.2, 0.2], color="black", linewidth=1.2, clip_on=False)
    words = f"critical difference {cd:.2f}; {ranking.blocks} pairs of a task and a seed; Friedman p {_p(ranking.p)}"
    axes.text(1, 0.15, words, ha="left", va="bottom")


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
