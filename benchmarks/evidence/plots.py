"""The figures of docs/evidence.md, as PNG files; the same evidence gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deepthink_cli.report.figures import COLOURS, GREY, LEGEND, MARKERS, STYLE

from .cells import compare_chosen
from .controls import follows
from .load import TASK_NAMES

RAW, CALIBRATED = COLOURS[0], COLOURS[1]
WIDTH, DPI = 7.0, 150


Draw = Callable[..., Figure]


def write(path: Path, draw: Draw, *data: Any) -> None:
    """Draw a figure with the style of `deepthink plot` and write it as PNG."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = draw(*data)
        FigureCanvasAgg(figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", dpi=DPI, metadata={"Software": None})


def differences(chosen: pd.DataFrame) -> Figure:
    """A line for each task and setting: thinking minus T = 1 with its interval over seeds, raw and calibrated."""
    groups = list(chosen.groupby(["task", "setting"], observed=True))
    figure = Figure(figsize=(WIDTH, 0.8 + 0.24 * len(groups)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(0, color=GREY, linewidth=0.8)
    for place, (_, rows) in enumerate(groups):
        for colour, calibrated, shift in ((RAW, False, -0.16), (CALIBRATED, True, 0.16)):
            comparison = compare_chosen(rows, calibrated)
            low, high = comparison.interval or (comparison.mean, comparison.mean)
            axes.plot([100 * low, 100 * high], [place + shift] * 2, color=colour, linewidth=1.2)
            axes.plot(100 * comparison.mean, place + shift, "o", color=colour, markersize=3.6)
            steps = [100 * step for step in comparison.steps]
            axes.plot(steps, [place + shift] * len(steps), "|", color=colour, markersize=4, alpha=0.6)
    axes.set_yticks(range(len(groups)), [f"{TASK_NAMES.get(task, task)}, {setting}" for (task, setting), _ in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xlabel("accuracy at the T and eta chosen on dev rows, minus T = 1 (points)")
    figure.legend(handles=_two("raw scores", "after batch calibration"), ncols=2, **LEGEND)
    return figure


def curves(rows: pd.DataFrame) -> Figure:
    """Accuracy over T: a column for each task, a row for each setting with its largest eta of the grid."""
    test = rows[rows["part"] == "test"]
    settings = _largest_etas(test)
    tasks = list(dict.fromkeys(test["task"]))
    figure = Figure(figsize=(WIDTH, 0.6 + 1.35 * len(settings)), layout="constrained")
    panels: list[Axes] = []
    for line, (setting, eta) in enumerate(settings):
        for column, task in enumerate(tasks):
            above = panels[column] if line else None
            axes = figure.add_subplot(len(settings), len(tasks), line * len(tasks) + column + 1, sharey=above)
            panels.append(axes)
            of_panel = test[(test["setting"] == setting) & (test["eta"] == eta) & (test["task"] == task)]
            for name, colour in (("accuracy", RAW), ("calibrated", CALIBRATED)):
                _lines(axes, of_panel, name, colour)
            axes.set_title(f"{TASK_NAMES.get(task, task)}\n{setting}, eta {eta:g}", pad=2)
    figure.supylabel("accuracy (%)", fontsize=7.5)
    figure.supxlabel("iterations T; thin lines: seeds, thick lines: their mean", fontsize=7.5)
    figure.legend(handles=_two("raw scores", "after batch calibration"), ncols=2, **LEGEND)
    return figure


def gains(cells: pd.DataFrame) -> Figure:
    """The gain of each (setting, eta, task, seed) against the label bias of its T = 1, raw and calibrated."""
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    tasks, settings = (list(dict.fromkeys(cells[name])) for name in ("task", "setting"))
    panels: list[Axes] = []
    for number, (column, title) in enumerate((("gain", "raw scores"), ("calibrated_gain", "after batch calibration"))):
        axes = figure.add_subplot(1, 2, number + 1, sharey=panels[0] if panels else None)
        panels.append(axes)
        axes.axhline(0, color=GREY, linewidth=0.8)
        for task_number, task in enumerate(tasks):
            for setting_number, setting in enumerate(settings):
                here = cells[(cells["task"] == task) & (cells["setting"] == setting)]
                look: Any = {"color": COLOURS[task_number % 7], "marker": MARKERS[setting_number % 9], "alpha": 0.75}
                axes.plot(100 * here["largest"], 100 * here[column], linestyle="", markersize=3.4, **look)
        axes.set_title(title, pad=3)
    panels[0].set_ylabel("mean gain over T > 1 (points)")
    figure.supxlabel("largest share of one predicted label at T = 1, dev rows (%)", fontsize=7.5)
    handles = [
        Line2D([], [], linestyle="", marker="o", color=COLOURS[n % 7], label=TASK_NAMES.get(task, task))
        for n, task in enumerate(tasks)
    ] + [
        Line2D([], [], linestyle="", marker=MARKERS[n % 9], color=GREY, label=str(setting))
        for n, setting in enumerate(settings)
    ]
    figure.legend(handles=handles, ncols=min(8, len(handles)), **{**LEGEND, "handlelength": 1.0})
    return figure


def labels(rows: pd.DataFrame, setting: str, eta: float, most: int = 5) -> Figure:
    """Shares of the predicted labels at each T, and of the true ones: a row for each task, a column for each seed."""
    test = rows[(rows["part"] == "test") & (rows["setting"] == setting) & (rows["eta"] == eta)]
    tasks, seeds = list(dict.fromkeys(test["task"])), sorted(set(test["seed"]))[:most]
    figure = Figure(figsize=(WIDTH, 0.5 + 1.15 * len(tasks)), layout="constrained")
    for line, task in enumerate(tasks):
        for column, seed in enumerate(seeds):
            axes = figure.add_subplot(len(tasks), len(seeds) + 1, line * (len(seeds) + 1) + column + 1)
            here = test[(test["task"] == task) & (test["seed"] == seed)].sort_values("t")
            if len(here):
                _bars(axes, here)
            axes.set_title(f"{TASK_NAMES.get(task, task)}, seed {seed}", pad=2)
        words = test[test["task"] == task]["scores"].iloc[0].labels
        axes = figure.add_subplot(len(tasks), len(seeds) + 1, (line + 1) * (len(seeds) + 1))
        axes.axis("off")
        squares = [Line2D([], [], linestyle="", marker="s", color=COLOURS[n % 7], label=w) for n, w in enumerate(words)]
        axes.legend(handles=squares[::-1], frameon=False, loc="center left", fontsize=6, handlelength=1)
    figure.supylabel("share of predicted labels (%)", fontsize=7.5)
    figure.supxlabel(f"iterations T, {setting}, eta {eta:g}; last bar: the true labels", fontsize=7.5)
    return figure


def following(rows: pd.DataFrame) -> Figure:
    """Demonstrations with exchanged label words: how many answers follow them, over T."""
    panels = list(rows.groupby(["task", "setting", "eta"], observed=True))
    figure = Figure(figsize=(WIDTH, 2.2), layout="constrained")
    for number, ((task, setting, eta), here) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        axes.axhline(50, color=GREY, linewidth=0.7, linestyle=":")
        for calibrated, colour in ((False, RAW), (True, CALIBRATED)):
            shown = here.assign(following=[float(follows(row, calibrated).mean()) for _, row in here.iterrows()])
            _lines(axes, shown, "following", colour)
        axes.set_title(f"{TASK_NAMES.get(task, task)}\n{setting}, eta {eta:g}", pad=2)
    figure.supylabel("follow the demonstrations (%)", fontsize=7.5)
    figure.supxlabel("iterations T; thin lines: seeds, thick lines: their mean, dotted: 50 %", fontsize=7.5)
    figure.legend(handles=_two("raw scores", "after batch calibration"), ncols=2, **LEGEND)
    return figure


def _largest_etas(rows: pd.DataFrame) -> list[tuple[str, float]]:
    return [(str(name), float(of_setting["eta"].max())) for name, of_setting in rows.groupby("setting", observed=True)]


def _lines(axes: Axes, rows: pd.DataFrame, name: str, colour: str) -> None:
    """One thin line for each seed and a thick one for the mean over the seeds that have every T."""
    if rows.empty:
        return
    table = 100 * rows.pivot(index="t", columns="seed", values=name)
    places = np.arange(len(table))
    for seed in table:
        axes.plot(places, table[seed], color=colour, linewidth=0.5, alpha=0.45)
    axes.plot(places, table.dropna(axis="columns").mean(axis="columns"), color=colour, linewidth=1.6)
    axes.set_xticks(places, [str(t) for t in table.index])


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    scores = rows["scores"].iloc[0]
    true = np.bincount(scores.gold, minlength=len(scores.labels)) / len(scores.gold)
    heights = 100 * np.array([*rows["distribution"], true])  # (T and the true one, labels)
    places = np.array([*range(len(rows)), len(rows) + 0.4])
    below = np.zeros(len(heights))
    for label in range(heights.shape[1]):
        axes.bar(places, heights[:, label], bottom=below, color=COLOURS[label % 7], width=0.9)
        below += heights[:, label]
    axes.set_xticks(places, [*(str(t) for t in rows["t"]), "true"], fontsize=5.5)
    axes.set_ylim(0, 100)


def _two(first: str, second: str) -> Sequence[Line2D]:
    return [Line2D([], [], color=RAW, label=first), Line2D([], [], color=CALIBRATED, label=second)]
