"""The charts of runs: accuracy over T for every task and mean, and its difference from T = 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.curves import Curve, Panel, with_gains
from deepthink_cli.report.html.page import Chart, ChartGroup, Point, Series
from deepthink_cli.report.significance import Paired, Spread

ACCURACY = (
    "Percent, the mean over seeds; bands are ± 1 sample standard deviation. T = 1 is plain in-context learning, but of "
    "techniques it is theirs. Dashed lines are dev rows, which only choose T and eta."
)
DIFFERENCE = (
    "Points, the mean over seeds, each against T = 1 with the same demonstrations, of plain in-context learning for "
    "techniques that are compared with it; bands are Student's 95 % intervals, each for one T alone: a band "
    "that leaves zero is a change beyond the noise between seeds."
)
PointsOf = Callable[[Curve], dict[int, Point]]


def curves_of(panels: Sequence[Panel]) -> list[ChartGroup]:
    """Charts of accuracy, and of its difference from T = 1; an arm has the same colour in all of them."""
    arms = list(dict.fromkeys(curve.arm for panel in panels for curve in panel.curves))
    colours = {arm: number for number, arm in enumerate(arms)}
    names = varying(arms) or ["model", "eta"]
    labels = {arm: arm.label(names, short=True) for arm in arms}
    groups = [ChartGroup("Accuracy", ACCURACY, [_accuracy(panel, labels, colours) for panel in panels])]
    if gains := with_gains(panels):
        charts = [_difference(panel, labels, colours) for panel in gains]
        groups.append(ChartGroup("Difference from T = 1", DIFFERENCE, charts))
    return groups


def _accuracy(panel: Panel, labels: Mapping[Arm, str], colours: Mapping[Arm, int]) -> Chart:
    majority = None if panel.majority is None else 100 * panel.majority
    name = "" if majority is None else f"always the most frequent label, {majority:.1f}"
    series = _series(panel, labels, colours, lambda curve: {t: _mean(spread) for t, spread in curve.points.items()})
    return Chart(_title(panel), "accuracy (%)", _iterations(panel), series, majority, name)


def _difference(panel: Panel, labels: Mapping[Arm, str], colours: Mapping[Arm, int]) -> Chart:
    series = _series(panel, labels, colours, lambda curve: {t: _gain(t, paired) for t, paired in curve.gains.items()})
    return Chart(_title(panel), "accuracy less T = 1", _iterations(panel), series, 0.0, "no change")


def _title(panel: Panel) -> str:
    return f"{panel.name} (mean of {max(curve.tasks for curve in panel.curves)})" if panel.is_mean else panel.name


def _iterations(panel: Panel) -> list[int]:
    return sorted({t for curve in panel.curves for t in curve.points})


def _series(panel: Panel, labels: Mapping[Arm, str], colours: Mapping[Arm, int], points_of: PointsOf) -> list[Series]:
    series = []
    for curve in panel.curves:
        points, is_dev = points_of(curve), curve.part == "dev"
        series.append(
            Series.of(
                labels[curve.arm] + (" on dev rows" if is_dev else ""),
                colours[curve.arm],
                [points.get(t) for t in _iterations(panel)],
                is_dashed=is_dev,
            )
        )
    return series


def _mean(spread: Spread) -> Point:
    mean, sd = 100 * spread.mean, 100 * (spread.sd or 0)
    if spread.sd is None:
        return Point(mean, None, f"{mean:.1f}")
    return Point(mean, (mean - sd, mean + sd), f"{mean:.1f} ± {sd:.1f} ({spread.n} seeds)")


def _gain(iteration: int, paired: Paired) -> Point:
    mean, interval = 100 * paired.spread.mean, paired.ci95
    if iteration == 1 and mean == 0:
        return Point(0.0, (0.0, 0.0), "0.0")  # by definition, not measured
    if interval is None:
        return Point(mean, None, f"{mean:+.1f}")
    low, high = (100 * bound for bound in interval)
    return Point(mean, (low, high), f"{mean:+.1f} ({low:+.1f} to {high:+.1f})")
