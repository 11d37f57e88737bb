"""What a page holds: text, tables, curves and samples, independent of how it is written."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from deepthink_cli.report.html.samples import Samples

PACKAGES = ("deepthink-cli", "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pandas")


def versions() -> dict[str, str]:
    """The version of Python and of every installed package that takes part, by name."""
    installed = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


@dataclass(frozen=True)
class Table:
    """A table of texts under a caption; `is_open` is false for one that is collapsed at first."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_open: bool = True


@dataclass(frozen=True)
class Point:
    """A value with its interval, if it has one, and the text that names them."""

    value: float
    interval: tuple[float, float] | None
    text: str


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    `values` has one number for each of the chart's iterations, None where there is none; `low` and `high` bound its
    band, and are empty without one; `notes` are the texts that name the values. `colour` numbers the colours and
    markers of `report.figures`; the same label has the same number in all charts.
    """

    label: str
    colour: int
    values: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]
    notes: Sequence[str]
    is_dashed: bool = False

    @classmethod
    def of(cls, label: str, colour: int, points: Sequence[Point | None], is_dashed: bool = False) -> Series:
        """The line through points, one for each iteration; it has a band if it is not dashed and a point has one."""
        intervals = [None if point is None else point.interval for point in points]
        is_band = not is_dashed and any(intervals)
        return cls(
            label=label,
            colour=colour,
            values=[None if point is None else point.value for point in points],
            low=[None if interval is None else interval[0] for interval in intervals] if is_band else [],
            high=[None if interval is None else interval[1] for interval in intervals] if is_band else [],
            notes=["" if point is None else point.text for point in points],
            is_dashed=is_dashed,
        )


@dataclass(frozen=True)
class Chart:
    """Lines over the iterations T; `level` is a horizontal line with a name."""

    title: str
    unit: str
    iterations: Sequence[int]
    series: Sequence[Series]
    level: float | None = None
    level_name: str = ""


@dataclass(frozen=True)
class ChartGroup:
    """Charts of one quantity; `about` says what their lines and bands are."""

    title: str
    about: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class WebPage:
    """The content of one HTML file.

    `summary` are the first lines under the title, `legend` explains the tables, `footnotes` follow it. `settings` name
    what made the results, `commands` are command lines with what each makes.
    """

    title: str
    summary: Sequence[str]
    tables: Sequence[Table]
    legend: Sequence[str]
    footnotes: Sequence[str]
    curves: Sequence[ChartGroup]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    commands: Sequence[tuple[str, str]]
    samples: Samples | None = None
    about_samples: Sequence[str] = field(default_factory=tuple)


def chart_json(chart: Chart) -> dict[str, Any]:
    """A chart as JSON values for the page's script."""
    return {
        "title": chart.title,
        "unit": chart.unit,
        "iterations": list(chart.iterations),
        "level": chart.level,
        "levelName": chart.level_name,
        "series": [
            {
                "label": series.label,
                "colour": series.colour,
                "values": list(series.values),
                "low": list(series.low),
                "high": list(series.high),
                "notes": list(series.notes),
                "dashed": series.is_dashed,
            }
            for series in chart.series
        ],
    }
