"""Distributions over seeds and over orders: the form of the paper's Figure 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepthink_cli.experiments.figure import ViolinsForm
from deepthink_cli.report.figures import GREY
from deepthink_cli.report.forms.canvas import ICL, LOOKS, OURS, legend, panels_of, short, titled
from deepthink_cli.report.forms.pairs import Pair, distinct, pairs
from deepthink_cli.report.job_results import JobResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPREAD = 0.09  # between the points of a violin, which would hide each other


def draw_violins(form: ViolinsForm, jobs: Sequence[JobResults]) -> Figure:
    """For each model and task a panel of seeds, whose demonstrations keep their order, and one of orders."""
    from matplotlib.patches import Patch

    every = pairs(jobs, form.iteration)
    shown = []
    for model in distinct([pair.model for pair in every]):
        for task in distinct([pair.task for pair in every]):
            of_both = [pair for pair in every if (pair.model, pair.task) == (model, task)]
            seeds = [pair for pair in of_both if pair.seed.order is None]
            orders = [pair for pair in of_both if pair.seed.order is not None]
            shown += [(part, values) for part, values in (("seeds", seeds), ("orders", orders)) if values]
    figure, grid = panels_of(len(shown), 3.4 if len(shown) == 1 else 2.3, 2)
    for axes, (part, values) in zip(grid, shown, strict=True):
        titled(axes, f"{task_of(values)}, {len(values)} random {part}", short(values[0].model))
        _draw(axes, values)
        heights = [each for pair in every for each in (pair.plain, pair.thinking)]
        axes.set_ylim(min(heights) - 2, max(heights) + 2)
    handles = [Patch(alpha=0.35, label=name, **LOOKS[name]) for name in (ICL, OURS)]
    figure.supylabel("accuracy (%)", fontsize=7.5)
    legend(
        figure,
        handles,
        f"each point is one choice of demonstrations, or one order of the same ones; bar: mean; T = 1 and "
        f"T = {every[0].iteration}",
    )
    return figure


def task_of(values: Sequence[Pair]) -> str:
    """The task of pairs that have the same one."""
    return values[0].task


def _draw(axes: Axes, values: Sequence[Pair]) -> None:
    from matplotlib.ticker import MaxNLocator

    for place, (name, field) in enumerate(((ICL, "plain"), (OURS, "thinking"))):
        points = [float(getattr(pair, field)) for pair in values]
        if len(set(points)) > 1:
            parts = axes.violinplot(points, [place], widths=0.75, showextrema=False)
            for body in parts["bodies"]:  # type: ignore[attr-defined]
                body.set(facecolor=LOOKS[name]["color"], alpha=0.35, linewidth=0)
        middle = (len(points) - 1) / 2
        across = [place + SPREAD * (n - middle) / max(1, middle) for n in range(len(points))]
        axes.plot(across, sorted(points), linestyle="none", marker="o", markersize=2, **LOOKS[name])
        mean = sum(points) / len(points)
        axes.plot([place - 0.2, place + 0.2], [mean, mean], linewidth=1.6, **LOOKS[name])
        axes.annotate(f"{mean:.1f}", (place + 0.22, mean), va="center", fontsize=6, color=GREY)
    axes.set_xticks([0, 1], [ICL, OURS])
    axes.set_xlim(-0.6, 1.6)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
