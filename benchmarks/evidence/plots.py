"""The figures of docs/evidence.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.style import CALIBRATED, RAW, canvas, legend, marks, of_scores
from deepthink_cli.report.figures import GREY, MARKERS
from deepthink_cli.report.significance import t_interval

from .cells import compare_chosen
from .controls import follows
from .load import TASK_NAMES

LINE, PANEL = 0.2, 0.95  # inches of a line of dots, and of a panel's height
SIDES = ((RAW, False, -0.17), (CALIBRATED, True, 0.17))


def differences(chosen: pd.DataFrame) -> Figure:
    """A line for each task and setting: thinking minus T = 1 with its interval over seeds, raw and calibrated."""
    groups = list(chosen.groupby(["task", "setting"], observed=True))
    figure = canvas(0.8 + LINE * len(groups))
    axes = figure.add_subplot()
    axes.axvline(0, color=GREY, linewidth=0.8)
    for place, (_, rows) in enumerate(groups):
        for colour, calibrated, shift in SIDES:
            comparison = compare_chosen(rows, calibrated)
            low, high = comparison.interval or (comparison.mean, comparison.mean)
            axes.plot([100 * low, 100 * high], [place + shift] * 2, color=colour, linewidth=1.2)
            axes.plot(100 * comparison.mean, place + shift, "o", color=colour, markersize=3)
    axes.set_yticks(range(len(groups)), [f"{TASK_NAMES.get(task, task)}, {setting}" for (task, setting), _ in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    figure.supxlabel("accuracy less T = 1 (points), 95 % intervals over seeds", fontsize=7)
    legend(figure, of_scores())
    return figure


def curves(rows: pd.DataFrame) -> Figure:
    """Accuracy over T: a row for each task, a column for each setting with its largest eta of the grid."""
    test = rows[rows["part"] == "test"]
    settings = [(str(name), float(each["eta"].max())) for name, each in test.groupby("setting", observed=True)]
    tasks = list(dict.fromkeys(test["task"]))
    figure = canvas(0.8 + PANEL * len(tasks))
    for line, task in enumerate(tasks):
        first: Axes | None = None
        for column, (setting, eta) in enumerate(settings):
            axes = figure.add_subplot(len(tasks), len(settings), line * len(settings) + column + 1, sharey=first)
            first = first or axes
            axes.tick_params(labelleft=not column, labelbottom=line == len(tasks) - 1)
            of_panel = test[(test["setting"] == setting) & (test["eta"] == eta) & (test["task"] == task)]
            for name, colour in (("accuracy", RAW), ("calibrated", CALIBRATED)):
                _lines(axes, of_panel, name, colour)
            if not line:
                axes.set_title(f"{setting}\neta {eta:g}", pad=3)
            if not column:
                axes.set_ylabel(TASK_NAMES.get(task, task))
    figure.supylabel("accuracy (%)", fontsize=7)
    figure.supxlabel("iterations T; mean and 95 % interval over seeds", fontsize=7)
    legend(figure, of_scores())
    return figure


def gains(cells: pd.DataFrame) -> Figure:
    """The gain of each (setting, eta, task, seed) against the label bias of its T = 1, raw and calibrated."""
    figure = canvas(2.6)
    tasks = list(dict.fromkeys(cells["task"]))
    first: Axes | None = None
    for number, (column, title, colour) in enumerate(
        (("gain", "raw scores", RAW), ("calibrated_gain", "batch-calibrated", CALIBRATED))
    ):
        axes = figure.add_subplot(1, 2, number + 1, sharey=first)
        first = first or axes
        axes.tick_params(labelleft=not number)
        axes.axhline(0, color=GREY, linewidth=0.8)
        for task_number, task in enumerate(tasks):
            here = cells[cells["task"] == task]
            look: Any = {"color": colour, "marker": MARKERS[task_number % len(MARKERS)], "alpha": 0.6}
            axes.plot(100 * here["largest"], 100 * here[column], linestyle="", markersize=3, **look)
        axes.set_title(title, pad=3)
    figure.supylabel("mean gain over T > 1 (points)", fontsize=7)
    figure.supxlabel("largest share of one label at T = 1, dev rows (%)", fontsize=7)
    legend(figure, marks([TASK_NAMES.get(task, task) for task in tasks]), 3)
    return figure


def labels(rows: pd.DataFrame, setting: str, eta: float, most: int = 3) -> Figure:
    """Shares of the predicted labels at each T, and of the true ones: a row for each task, a column for each seed."""
    test = rows[(rows["part"] == "test") & (rows["setting"] == setting) & (rows["eta"] == eta)]
    tasks, seeds = list(dict.fromkeys(test["task"])), sorted(set(test["seed"]))[:most]
    figure = canvas(0.5 + 1.3 * len(tasks))
    for line, (task, part) in enumerate(zip(tasks, figure.subfigures(len(tasks), squeeze=False)[:, 0], strict=True)):
        words = test[test["task"] == task]["scores"].iloc[0].labels
        for column, seed in enumerate(seeds):
            axes = part.add_subplot(1, len(seeds), column + 1)
            axes.tick_params(labelleft=not column)
            here = test[(test["task"] == task) & (test["seed"] == seed)].sort_values("t")
            if len(here):
                _bars(axes, here)
            axes.set_title(f"seed {seed}" if line == 0 else "", pad=3)
            if not column:
                axes.set_ylabel(TASK_NAMES.get(task, task))
        squares = [
            Line2D([], [], linestyle="", marker="s", markersize=4, color=colour, label=word)
            for word, colour in zip(words, _shades(len(words)), strict=True)
        ]
        look: Any = {"loc": "outside upper center", "frameon": False, "handlelength": 0.8, "columnspacing": 0.7}
        part.legend(handles=squares, ncols=min(5, len(words)) if len(words) < 6 else 3, handletextpad=0.3, **look)
    figure.supylabel("share of predicted labels (%)", fontsize=7)
    figure.supxlabel(f"iterations T, {setting}, eta {eta:g}; last bar: the true labels", fontsize=7)
    return figure


def following(rows: pd.DataFrame) -> Figure:
    """Demonstrations with exchanged label words: how many answers follow them, over T."""
    panels = list(rows.groupby(["task", "setting", "eta"], observed=True))
    columns = min(2, len(panels))
    figure = canvas(0.6 + 1.15 * -(-len(panels) // columns))
    first: Axes | None = None
    for number, ((task, setting, eta), here) in enumerate(panels):
        axes = figure.add_subplot(-(-len(panels) // columns), columns, number + 1, sharey=first)
        first = first or axes
        axes.axhline(50, color=GREY, linewidth=0.7, linestyle=":")
        for colour, calibrated, _ in SIDES:
            shown = here.assign(following=[float(follows(row, calibrated).mean()) for _, row in here.iterrows()])
            _lines(axes, shown, "following", colour)
        axes.set_title(f"{TASK_NAMES.get(task, task)}, {setting}, eta {eta:g}", pad=3, fontsize=7)
    axes.set_ylim(0, 100)
    figure.supylabel("follow the demonstrations (%)", fontsize=7)
    figure.supxlabel("iterations T; mean and 95 % interval over seeds; dotted: half", fontsize=7)
    legend(figure, of_scores())
    return figure


def _lines(axes: Axes, rows: pd.DataFrame, name: str, colour: str) -> None:
    """The mean over the seeds that have every T, with Student's 95 % interval."""
    if rows.empty:
        return
    table = 100 * rows.pivot(index="t", columns="seed", values=name).dropna(axis="columns")
    places = np.arange(len(table))
    means = table.mean(axis="columns").to_numpy()
    ends = [(t_interval(values.tolist()) or (mean, mean)) for values, mean in zip(table.to_numpy(), means, strict=True)]
    axes.fill_between(places, *np.clip(np.transpose(ends), 0, 100), color=colour, alpha=0.2, linewidth=0)
    axes.plot(places, means, color=colour, linewidth=1.4)
    axes.set_xticks(places, [str(t) for t in table.index])


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    scores = rows["scores"].iloc[0]
    true = np.bincount(scores.gold, minlength=len(scores.labels)) / len(scores.gold)
    heights = 100 * np.array([*rows["distribution"], true])  # (T and the true one, labels)
    places = np.array([*range(len(rows)), len(rows) + 0.4])
    below = np.zeros(len(heights))
    for label, colour in enumerate(_shades(heights.shape[1])):
        axes.bar(places, heights[:, label], bottom=below, color=colour, width=0.9)
        below += heights[:, label]
    shown = (0, len(rows) // 2, len(rows) - 1)
    axes.set_xticks(places[[*shown]], [str(rows["t"].iloc[place]) for place in shown])
    axes.set_ylim(0, 100)
    axes.set_yticks((0, 50, 100))


def _shades(number: int) -> list[tuple[float, float, float, float]]:
    """Colours of labels, which are those of nothing else, from dark to light."""
    return [colormaps["cividis"](each) for each in np.linspace(0.05, 0.95, number)]
