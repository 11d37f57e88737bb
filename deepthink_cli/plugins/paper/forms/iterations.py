"""Accuracy over T by eta, and dev against test rows: the form of the paper's Figure 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.plugins.paper.forms.canvas import POINT, legend, panels_of, short, titled
from deepthink_cli.plugins.paper.forms.options import IterationsOptions
from deepthink_cli.plugins.paper.published import published
from deepthink_cli.report.arms import Arm
from deepthink_cli.report.curves import Curve, Panel, panels
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.style import COLOURS, GREY, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def draw_iterations(form: IterationsOptions, jobs: Sequence[JobResults]) -> Figure:
    """For each model and task a panel with a line for each eta, and one with dev and test rows of one eta."""
    shown: list[tuple[Panel, str, bool]] = []
    for panel in panels(jobs):
        for model in dict.fromkeys(curve.arm.model for curve in panel.curves):
            has_dev = any(_is_dev(curve, form) and curve.arm.model == model for curve in panel.curves)
            shown += [(panel, model, False), *([(panel, model, True)] if has_dev else [])]
    if not shown:
        raise InputError("figure: no seed has rows at every T yet; continue the study")
    arms = list(dict.fromkeys(curve.arm for panel, _, _ in shown for curve in panel.curves))
    looks = _looks(arms)
    figure, grid = panels_of(len(shown), 3.4 if len(shown) == 1 else 2.3, 2)
    handles: dict[str, Line2D] = {}
    for axes, (panel, model, beside) in zip(grid, shown, strict=True):
        curves = [curve for curve in panel.curves if curve.arm.model == model]
        titled(axes, panel.name, short(model) + (f", eta {form.dev_eta:g}" if beside else ""))
        drawn = _dev(axes, curves, form) if beside else _etas(axes, curves, looks)
        drawn |= {} if beside else _published(axes, form, model, panel.name)
        handles |= drawn
        axes.set_xlabel("iterations T", fontsize=7)
    seeds = max(len(values) for panel, _, _ in shown for curve in panel.curves for values in curve.accuracies.values())
    figure.supylabel("accuracy (%)", fontsize=7.5)
    series = published().series.get(form.published or "")
    source = series.note if series and series.label in handles else ""
    meaning = "one seed" if seeds == 1 else f"mean of {seeds} seeds, band: ± 1 standard deviation"
    legend(figure, list(handles.values()), "; ".join(filter(None, [meaning, source])))
    return figure


def _is_dev(curve: Curve, form: IterationsOptions) -> bool:
    return curve.part == "dev" and curve.arm.eta == form.dev_eta


def _looks(arms: Sequence[Arm]) -> Mapping[float, tuple[str, str]]:
    etas = list(dict.fromkeys(arm.eta for arm in arms if arm.eta is not None))
    return {eta: (COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)]) for n, eta in enumerate(etas)}


def _etas(axes: Axes, curves: Sequence[Curve], looks: Mapping[float, tuple[str, str]]) -> dict[str, Line2D]:
    handles = {}
    for curve in curves:
        if curve.part == "test" and curve.arm.eta is not None:
            colour, marker = looks[curve.arm.eta]
            label = f"eta {curve.arm.eta:g}"
            handles[label] = _line(axes, curve, label, color=colour, marker=marker)
    return handles


def _dev(axes: Axes, curves: Sequence[Curve], form: IterationsOptions) -> dict[str, Line2D]:
    handles = {}
    for curve in curves:
        if curve.arm.eta == form.dev_eta and curve.part == "dev":
            handles["dev rows"] = _line(axes, curve, "dev rows", color=COLOURS[3], linestyle=(0, (4, 2)))
        elif curve.arm.eta == form.dev_eta:
            handles["test rows"] = _line(axes, curve, "test rows", color=COLOURS[6], marker="o")
    return handles


def _line(axes: Axes, curve: Curve, label: str, **look: object) -> Line2D:
    points = curve.points
    middle = [100 * point.mean for point in points.values()]
    (line,) = axes.plot(list(points), middle, label=label, zorder=3, **look)  # type: ignore[arg-type]
    if any(point.sd for point in points.values()):
        low, high = zip(*((p.mean - (p.sd or 0), p.mean + (p.sd or 0)) for p in points.values()), strict=True)
        percent = [[100 * value for value in values] for values in (low, high)]
        axes.fill_between(list(points), *percent, color=look["color"], alpha=0.12, linewidth=0)  # type: ignore[arg-type]
    return line


def _published(axes: Axes, form: IterationsOptions, model: str, task: str) -> dict[str, Line2D]:
    """The authors' points of this model and task, if they are named."""
    series = published().series.get(form.published or "")
    if series is None or not published().is_of(series, model, task):
        return {}
    (points,) = axes.plot(list(series.points), list(series.points.values()), color=GREY, label=series.label, **POINT)
    return {series.label: points}
