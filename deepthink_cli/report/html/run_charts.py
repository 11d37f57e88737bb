"""The charts of runs: accuracy over T for every task and mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.curves import Curve, Panel
from deepthink_cli.report.html.page import Chart, Series
from deepthink_cli.report.significance import Spread

ABOUT = (
    "Accuracy in percent by T, the mean over seeds; bands are ± 1 sample standard deviation. T = 1 is plain in-context "
    "learning. Dashed lines are dev rows, which only choose T and eta."
)


def charts_of(panels: Sequence[Panel]) -> list[Chart]:
    """A chart for each panel; an arm has the same colour in all of them."""
    arms = list(dict.fromkeys(curve.arm for panel in panels for curve in panel.curves))
    colours = {arm: number for number, arm in enumerate(arms)}
    names = varying(arms) or ["model", "eta"]
    return [_chart(panel, colours, names) for panel in panels]


def _chart(panel: Panel, colours: Mapping[Arm, int], names: Sequence[str]) -> Chart:
    iterations = sorted({t for curve in panel.curves for t in curve.points})
    count = max(curve.tasks for curve in panel.curves)
    return Chart(
        title=f"{panel.name} (mean of {count})" if panel.is_mean else panel.name,
        unit="accuracy (%)",
        iterations=iterations,
        series=[_series(curve, iterations, colours[curve.arm], names) for curve in panel.curves],
        level=None if panel.majority is None else 100 * panel.majority,
        level_name="always the most frequent label",
    )


def _series(curve: Curve, iterations: Sequence[int], colour: int, names: Sequence[str]) -> Series:
    spreads = [curve.points.get(t) for t in iterations]
    has_band = curve.part == "test" and any(spread is not None and spread.sd for spread in spreads)
    return Series(
        label=curve.arm.label(names, short=True) + (" on dev rows" if curve.part == "dev" else ""),
        colour=colour,
        values=[None if spread is None else 100 * spread.mean for spread in spreads],
        low=[_bound(spread, -1) for spread in spreads] if has_band else [],
        high=[_bound(spread, 1) for spread in spreads] if has_band else [],
        notes=["" if spread is None else _note(spread) for spread in spreads],
        is_dashed=curve.part == "dev",
    )


def _bound(spread: Spread | None, side: int) -> float | None:
    return None if spread is None else 100 * (spread.mean + side * (spread.sd or 0))


def _note(spread: Spread) -> str:
    mean = f"{100 * spread.mean:.1f}"
    return f"{mean} ± {100 * spread.sd:.1f} ({spread.n} seeds)" if spread.sd is not None else mean
