"""The figures of docs/evidence.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deepthink_cli.report.dots import Dot, dots_figure
from deepthink_cli.report.figures import COLUMN, GREY, MARKERS
from deepthink_cli.report.significance import t_interval
from research.style import CALIBRATED, MORE_LABELS, OWN_LABELS, RAW, THINKS, canvas, legend, marks, of_scores
from research.table1.page import dot

from .cells import PAPER
from .controls import follows
from .discrimination import LARGE_STEP, Compared, compare, without_dev
from .findings import short_name
from .load import TASK_NAMES

Colour = tuple[float, float, float]
LINE, PANEL = 0.2, 0.95  # inches of a line of dots, and of a panel's height
SHORT = {
    "the paper's setting, ": "the paper's, ",
    "T and eta by dev rows": "tuned",
    " by dev rows": " by dev",
    ", on the rows of the lines below": ", here",
    " against ": " minus ",
    " of the demonstrations, T = 1": "",
    " demonstrations": "",
    " hidden state of labelled rows": "",
    "`": "",
}
SIDES = ((RAW, False, -0.17), (CALIBRATED, True, 0.17))


def question(found: Sequence[Compared]) -> Figure:
    """The lines of the first table: accuracy, and two measures that a moved prior does not raise."""

    def line(each: Compared, name: str) -> Dot:
        group = "thinking" if each.thinks else "further labels" if each.labels else "own labels"
        return dot(_label(each.name), each.differences[name], group)

    drawn = [each for each in found if each.name != LARGE_STEP]  # its losses would leave no room for the others
    panels = {name: [line(each, name) for each in drawn] for name in ("accuracy", "matched", "pairs")}
    looks = {"thinking": THINKS, "own labels": OWN_LABELS, "further labels": MORE_LABELS}
    return dots_figure(panels, "difference (points), 95 % intervals", looks, COLUMN, one_scale=False)


def _label(name: str) -> str:
    """The name of a line, short enough for a column."""
    for words, short in SHORT.items():
        name = name.replace(words, short)
    return short_name(name)


def differences(chosen: pd.DataFrame) -> Figure:
    """A line for each task and setting: thinking minus T = 1 with its interval, raw and calibrated."""
    groups = list(chosen.groupby(["task", "setting"], observed=True))
    figure = canvas(0.8 + LINE * len(groups))
    axes = figure.add_subplot()
    axes.axvline(0, color=GREY, linewidth=0.8)
    for place, (_, rows) in enumerate(groups):
        for colour, calibrated, shift in SIDES:
            after, measure = ("calibrated_after", "batch") if calibrated else ("after", "accuracy")
            change = compare(without_dev(rows["before"], rows[after]), measure)
            if np.isfinite(change.interval).all():
                axes.plot(100 * np.array(change.interval), [place + shift] * 2, color=colour, linewidth=1.2)
            axes.plot(100 * change.mean, place + shift, "o", color=colour, markersize=3)
    axes.set_yticks(range(len(groups)), [f"{TASK_NAMES.get(task, task)}, {setting}" for (task, setting), _ in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    figure.supxlabel("accuracy minus T = 1 (points), 95 % intervals", fontsize=7)
    legend(figure, of_scores())
    return figure


def curves(rows: pd.DataFrame) -> Figure:
    """Accuracy over T: a row for each task, a column for the paper's setting and each with its largest eta."""
    test = rows[rows["part"] == "test"]
    settings = [(str(name), float(each["eta"].max())) for name, each in test.groupby("setting", observed=True)]
    if PAPER not in settings:
        settings.insert(0, PAPER)
    tasks = list(dict.fromkeys(test["task"]))
    figure = canvas(0.8 + PANEL * len(tasks))
    for line, task in enumerate(tasks):
        first: Axes | None = None
        for column, (setting, eta) in enumerate(settings):
            axes = figure.add_subplot(len(tasks), len(settings), line * len(settings) + column + 1, sharey=first)
            first = first or axes
            axes.tick_params(labelleft=not column, labelbottom=line == len(tasks) - 1)
            axes.tick_params("x", labelsize=5.5)
            of_panel = test[(test["setting"] == setting) & (test["eta"] == eta) & (test["task"] == task)]
            for name, colour in (("accuracy", RAW), ("calibrated", CALIBRATED)):
                _lines(axes, of_panel, name, colour)
            if not line:
                name = "the paper's" if (setting, eta) == PAPER else setting
                axes.set_title(f"{name}\neta {eta:g}", pad=3)
            if not column:
                axes.set_ylabel(TASK_NAMES.get(task, task))
    figure.supylabel("accuracy (%)", fontsize=7)
    figure.supxlabel("iterations T; mean and 95 % interval over seeds", fontsize=7)
    legend(figure, of_scores())
    return figure


def gains(runs: pd.DataFrame) -> Figure:
    """The mean gain of each task and seed over settings against the label bias of its T = 1, raw and calibrated."""
    figure = canvas(2.6)
    names = ["largest", "gain", "calibrated_gain"]
    cells = runs.groupby(["task", "seed"], observed=True)[names].mean().reset_index()
    tasks = list(dict.fromkeys(runs["task"]))
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
    figure.supylabel("mean gain over T > 1, settings and eta (points)", fontsize=7)
    figure.supxlabel("largest share of one label at T = 1, dev rows (%)", fontsize=7)
    legend(figure, marks([TASK_NAMES.get(task, task) for task in tasks]), 3)
    return figure


def labels(rows: pd.DataFrame, setting: str, eta: float, most: int = 3) -> Figure:
    """Shares of the predicted labels at each T, and of the true ones: a row for each task, a column for each seed."""
    test = rows[(rows["part"] == "test") & (rows["setting"] == setting) & (rows["eta"] == eta)]
    tasks, seeds = list(dict.fromkeys(test["task"])), sorted(set(test["seed"]))[:most]
    colours = _colours(word for task in tasks for word in _words(test, task))
    figure = canvas(0.5 + 1.3 * len(tasks))
    for line, (task, part) in enumerate(zip(tasks, figure.subfigures(len(tasks), squeeze=False)[:, 0], strict=True)):
        words = _words(test, task)
        for column, seed in enumerate(seeds):
            axes = part.add_subplot(1, len(seeds), column + 1)
            axes.tick_params(labelleft=not column)
            here = test[(test["task"] == task) & (test["seed"] == seed)].sort_values("t")
            if len(here):
                _bars(axes, here, [colours[word] for word in words])
            axes.set_title(f"seed {seed}" if line == 0 else "", pad=3)
            if not column:
                axes.set_ylabel(TASK_NAMES.get(task, task))
        squares = [
            Line2D([], [], linestyle="", marker="s", markersize=4, color=colours[word], label=word) for word in words
        ]
        look: Any = {"loc": "outside upper center", "frameon": False, "handlelength": 0.8, "columnspacing": 0.7}
        part.legend(handles=squares, ncols=min(5, len(words)) if len(words) < 6 else 3, handletextpad=0.3, **look)
    figure.supylabel("share of predicted labels (%)", fontsize=7)
    iterations = ", ".join(str(t) for t in sorted(set(test["t"])))
    figure.supxlabel(f"T = {iterations} ({setting}, eta {eta:g}); last bar: the true labels", fontsize=7)
    return figure


def following(rows: pd.DataFrame, grid: pd.DataFrame) -> Figure:
    """Demonstrations with exchanged label words: how many answers follow them, over T, and how many do so without."""
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
        usual = grid.merge(here[["task", "setting", "eta", "t", "seed", "rows"]])
        if len(usual):
            wrong = [float(follows(row, calibrated=True).mean()) for _, row in usual.iterrows()]
            _lines(axes, usual.assign(following=wrong), "following", GREY)
        axes.set_title(f"{TASK_NAMES.get(task, task)}, {setting}, eta {eta:g}", pad=3, fontsize=7)
    axes.set_ylim(0, 100)
    figure.supylabel("exchanged words given (%)", fontsize=7)
    figure.supxlabel("iterations T; mean and 95 % interval over seeds; dotted: half", fontsize=7)
    control = Line2D([], [], color=GREY, label="words not exchanged (calibrated)")
    legend(figure, [*of_scores(), control])
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


def _words(rows: pd.DataFrame, task: str) -> tuple[str, ...]:
    words: tuple[str, ...] = rows[rows["task"] == task]["scores"].iloc[0].labels
    return words


def _bars(axes: Axes, rows: pd.DataFrame, colours: Sequence[Colour]) -> None:
    scores = rows["scores"].iloc[0]
    true = np.bincount(scores.gold, minlength=len(scores.labels)) / len(scores.gold)
    heights = 100 * np.array([*rows["distribution"], true])  # (T and the true one, labels)
    places = np.array([*range(len(rows)), len(rows) + 0.4])
    below = np.zeros(len(heights))
    for label, colour in enumerate(colours):
        axes.bar(places, heights[:, label], bottom=below, color=colour, width=0.9)
        below += heights[:, label]
    shown = (0, len(rows) // 2, len(rows) - 1)
    axes.set_xticks(places[[*shown]], [str(rows["t"].iloc[place]) for place in shown])
    axes.set_ylim(0, 100)
    axes.set_yticks((0, 50, 100))


def _colours(words: Iterable[str]) -> dict[str, Colour]:
    """A colour for each label word, the same for all tasks; they are the colours of nothing else."""
    known = [*colormaps["Set3"].colors, *colormaps["Dark2"].colors[2:]]  # the first two are near those of `style`
    return {word: known[place % len(known)] for place, word in enumerate(dict.fromkeys(words))}
