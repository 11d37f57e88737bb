"""T = 1 beside T: bars for groups of tasks, lines over the number of demonstrations, distributions (Figures 3 to 5)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import grouped
from deepthink_cli.plugins.paper.published import published
from deepthink_cli.plugins.paper.registry import BarsOptions, LinesOptions, ViolinsOptions
from deepthink_cli.report.figures import COLOURS, COLUMN, GREY, LEGEND, PAGE
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds
from deepthink_cli.report.significance import Spread
from deepthink_cli.report.tables import TableRow, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ICL, OURS = "ICL (T = 1)", "Deep-Thinking"
LOOKS: Mapping[str, Mapping[str, Any]] = {ICL: {"color": COLOURS[0]}, OURS: {"color": COLOURS[1]}}
WIDTH, HEIGHT = 1.7, 1.75  # inches of a panel


def panels_of(number: int, width: float = WIDTH, abreast: int = 4, extra: float = 0.6) -> tuple[Figure, Iterator[Axes]]:
    """A figure with a grid of panels, at most as wide as a page."""
    from matplotlib.figure import Figure

    columns = min(number, abreast)
    rows = -(-number // columns)
    size = (min(PAGE, max(COLUMN, columns * width)), rows * HEIGHT + extra)
    figure = Figure(figsize=size, layout="constrained")
    return figure, (figure.add_subplot(rows, columns, place) for place in range(1, number + 1))


def titled(axes: Axes, *lines: str) -> None:
    """Set the title of a panel, broken to its width."""
    axes.set_title("\n".join(textwrap.fill(line, 30, break_on_hyphens=False) for line in lines if line), pad=3)


def legend(figure: Figure, handles: Sequence[Any], below: str) -> None:
    """The legend above the panels, the name of the axis, and what points and bands mean below."""
    figure.supylabel("accuracy (%)", fontsize=7.5)
    figure.legend(handles=list(handles), ncols=len(handles), **LEGEND)
    figure.supxlabel(textwrap.fill(below, int(18 * figure.get_size_inches()[0])), fontsize=7, color=GREY)


def short(model: str) -> str:
    """A model's name without its owner or folder."""
    return PurePath(model).name


@dataclass(frozen=True)
class Pair:
    """One job: the accuracy of its baseline and at T = `iteration`, in percent."""

    model: str
    task: str
    seed: Seed
    shots: int
    iteration: int
    plain: float
    thinking: float


def pairs(jobs: Sequence[JobResults], iteration: int | None) -> list[Pair]:
    """The jobs with a baseline and test rows at the T of the form, or at the last T; raises InputError without any.

    Among jobs with the same demonstrations in the same order, only the first counts.
    """
    last = max((t for job in jobs for t in job.test), default=1)
    wanted, found = min(iteration or last, last), list[Pair]()
    scored = [job for job in jobs if wanted in job.test]
    for job in different_seeds(scored, lambda job: (job.arm, job.task, job.seed.order < 0, job.demonstrations)):
        compared = job.compared(wanted)
        if compared.plain is not None:
            found.append(
                Pair(
                    model=job.arm.model,
                    task=job.task,
                    seed=job.seed,
                    shots=compared.result.setting.shots,
                    iteration=wanted,
                    plain=100 * compared.plain,
                    thinking=100 * compared.thinking,
                )
            )
    if not found:
        raise InputError(f"no job has rows at T = 1 and at T = {wanted} yet; continue the study")
    return found


def distinct(values: Sequence[str]) -> list[str]:
    """The different values, in their order."""
    return list(dict.fromkeys(values))


BAR = 0.38  # width of a bar, where the columns are 1 apart


def draw_bars(form: BarsOptions, jobs: Sequence[JobResults]) -> Figure:
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
        _draw_bars(axes, [name for name in columns if name in by_name], by_name, gains)
    handles = [Patch(label=name, **LOOKS[name]) for name in (ICL, OURS)]
    paper = "; in brackets the gain that the paper's text states" if stated else "; the paper prints no figures here"
    legend(figure, handles, f"means over tasks; above the bars the gain in points{paper}")
    return figure


def _draw_bars(
    axes: Axes, columns: Sequence[str], rows: Mapping[str, TableRow], gains: Mapping[str, float | None]
) -> None:
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


def draw_lines(form: LinesOptions, jobs: Sequence[JobResults]) -> Figure:
    """A panel for each model and task; mean and standard deviation over seeds."""
    from matplotlib.lines import Line2D

    every = pairs(jobs, form.iteration)
    shown, models = grouped(every, lambda pair: (pair.model, pair.task)), distinct([pair.model for pair in every])
    figure, grid = panels_of(len(shown), 3.4 if len(shown) == 1 else 2.3, 3)
    for axes, ((model, task), of_panel) in zip(grid, shown.items(), strict=True):
        titled(axes, task, short(model) if len(models) > 1 else "")
        _draw_lines(axes, of_panel)
    handles = [Line2D([], [], marker=mark, label=name, **LOOKS[name]) for name, mark in ((ICL, "o"), (OURS, "s"))]
    seeds = len({str(pair.seed) for pair in every})
    of = f" of {short(models[0])}" if len(models) == 1 else ""
    legend(
        figure,
        handles,
        f"accuracy{of} at T = 1 and T = {every[0].iteration}; mean of {seeds} seeds, band: ± 1 standard deviation",
    )
    return figure


def _draw_lines(axes: Axes, shown: Sequence[Pair]) -> None:
    counts = sorted({pair.shots for pair in shown})
    for name, marker, field in ((ICL, "o", "plain"), (OURS, "s", "thinking")):
        spreads = [Spread.of([getattr(pair, field) for pair in shown if pair.shots == count]) for count in counts]
        axes.plot(counts, [spread.mean for spread in spreads], marker=marker, zorder=3, **LOOKS[name])
        low, high = zip(*((each.mean - (each.sd or 0), each.mean + (each.sd or 0)) for each in spreads), strict=True)
        axes.fill_between(counts, low, high, alpha=0.15, linewidth=0, zorder=1, **LOOKS[name])
    axes.set_xticks(counts)
    axes.set_xlabel("demonstrations", fontsize=7)


SPREAD = 0.09  # between the points of a violin, which would hide each other


def draw_violins(form: ViolinsOptions, jobs: Sequence[JobResults]) -> Figure:
    """For each model and task a panel of seeds, whose demonstrations keep their order, and one of orders."""
    from matplotlib.patches import Patch

    every = pairs(jobs, form.iteration)
    shown = grouped(every, lambda pair: (pair.model, pair.task, "seeds" if pair.seed.order < 0 else "orders"))
    figure, grid = panels_of(len(shown), 3.4 if len(shown) == 1 else 2.3, 2)
    for axes, ((model, task, part), values) in zip(grid, shown.items(), strict=True):
        titled(axes, f"{task}, {len(values)} random {part}", short(model))
        _draw_violins(axes, values)
        heights = [each for pair in every for each in (pair.plain, pair.thinking)]
        axes.set_ylim(min(heights) - 2, max(heights) + 2)
    handles = [Patch(alpha=0.35, label=name, **LOOKS[name]) for name in (ICL, OURS)]
    legend(
        figure,
        handles,
        f"each point is one choice of demonstrations, or one order of the same ones; bar: mean; T = 1 and "
        f"T = {every[0].iteration}",
    )
    return figure


def _draw_violins(axes: Axes, values: Sequence[Pair]) -> None:
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
