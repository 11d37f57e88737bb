"""Two bars for each group of tasks: the form of the paper's Figure 3, the categories of MMLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.figure import BarsForm
from deepthink_cli.report.figures import GREY
from deepthink_cli.report.forms.canvas import ICL, LOOKS, OURS, legend, panels_of, short, titled
from deepthink_cli.report.forms.pairs import distinct
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.published import published
from deepthink_cli.report.tables import TableRow, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 0.38  # width of a bar, where the columns are 1 apart


def draw_bars(form: BarsForm, jobs: Sequence[JobResults]) -> Figure:
    """A panel for each model; over each pair of bars the gain, and the paper's where its text states it."""
    from matplotlib.patches import Patch

    rows = [row for row in summarize(jobs, form.iteration) if row.plain is not None]
    names = [row.name for row in rows]
    columns = [name for name in form.columns or distinct(names) if name in names]
    if not columns:
        raise InputError(f"figure: there are no rows of {', '.join(form.columns)} yet; continue the study")
    models = distinct([row.arm.model for row in rows])
    figure, grid = panels_of(len(models), 3.4 if len(models) == 1 else 0.5 + 0.75 * len(columns), 2, 0.7)
    stated = False
    for axes, model in zip(grid, models, strict=True):
        by_name = {row.name: row for row in rows if row.arm.model == model}
        gains = {name: published().gain(model, name) for name in columns}
        stated = stated or any(gain is not None for gain in gains.values())
        titled(axes, short(model))
        _draw(axes, [name for name in columns if name in by_name], by_name, gains)
    handles = [Patch(label=name, **LOOKS[name]) for name in (ICL, OURS)]
    figure.supylabel("accuracy (%)", fontsize=7.5)
    paper = "; in brackets the gain that the paper's text states" if stated else "; the paper prints no figures here"
    legend(figure, handles, f"means over tasks; above the bars the gain in points{paper}")
    return figure


def _draw(axes: Axes, columns: Sequence[str], rows: Mapping[str, TableRow], gains: Mapping[str, float | None]) -> None:
    highest = 0.0
    for place, name in enumerate(columns):
        row, stated = rows[name], gains[name]
        spreads = [spread for spread in (row.plain, row.thinking) if spread is not None]
        heights = [100 * spread.mean for spread in spreads]
        for side, method, height, spread in zip((-1, 1), (ICL, OURS), heights, spreads, strict=True):
            error = None if spread.sd is None else 100 * spread.sd
            axes.bar(place + side * BAR / 2, height, BAR, yerr=error, error_kw={"lw": 0.7}, **LOOKS[method])
            highest = max(highest, height + (error or 0))
        text = f"{heights[1] - heights[0]:+.1f}" + ("" if stated is None else f"\n({stated:+.1f})")
        axes.annotate(
            text, (place, max(heights)), (0, 3), textcoords="offset points", ha="center", fontsize=6, color=GREY
        )
    labels = [name.rpartition("/")[2].replace("_", "\n") for name in columns]
    axes.set_xticks(range(len(columns)), labels)
    axes.set_ylim(0, highest * 1.22)
