"""Accuracy over the number of demonstrations: the form of the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepthink_cli.experiments.figure import LinesForm
from deepthink_cli.report.forms.canvas import ICL, LOOKS, OURS, legend, panels_of, short, titled
from deepthink_cli.report.forms.pairs import Pair, distinct, pairs
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.significance import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_lines(form: LinesForm, jobs: Sequence[JobResults]) -> Figure:
    """A panel for each model and task; mean and standard deviation over seeds."""
    from matplotlib.lines import Line2D

    every = pairs(jobs, form.iteration)
    models, tasks = distinct([pair.model for pair in every]), distinct([pair.task for pair in every])
    shown = [(m, t) for m in models for t in tasks if any((pair.model, pair.task) == (m, t) for pair in every)]
    figure, grid = panels_of(len(shown), 3.4 if len(shown) == 1 else 2.3, 3)
    for axes, (model, task) in zip(grid, shown, strict=True):
        of_panel = [pair for pair in every if (pair.model, pair.task) == (model, task)]
        titled(axes, task, short(model) if len(models) > 1 else "")
        _draw(axes, of_panel)
    handles = [Line2D([], [], marker=mark, label=name, **LOOKS[name]) for name, mark in ((ICL, "o"), (OURS, "s"))]
    seeds = len({str(pair.seed) for pair in every})
    figure.supylabel("accuracy (%)", fontsize=7.5)
    of = f" of {short(models[0])}" if len(models) == 1 else ""
    legend(
        figure,
        handles,
        f"accuracy{of} at T = 1 and T = {every[0].iteration}; mean of {seeds} seeds, band: ± 1 standard deviation",
    )
    return figure


def _draw(axes: Axes, shown: Sequence[Pair]) -> None:
    counts = sorted({pair.shots for pair in shown})
    for name, marker, field in ((ICL, "o", "plain"), (OURS, "s", "thinking")):
        spreads = [Spread.of([getattr(pair, field) for pair in shown if pair.shots == count]) for count in counts]
        axes.plot(counts, [spread.mean for spread in spreads], marker=marker, zorder=3, **LOOKS[name])
        low, high = zip(*((each.mean - (each.sd or 0), each.mean + (each.sd or 0)) for each in spreads), strict=True)
        axes.fill_between(counts, low, high, alpha=0.15, linewidth=0, zorder=1, **LOOKS[name])
    axes.set_xticks(counts)
    axes.set_xlabel("demonstrations", fontsize=7)
