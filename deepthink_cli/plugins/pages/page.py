"""The content of a page, and its writing as one HTML file that needs no network and refuses any.

Jinja escapes every text; uPlot (MIT licence) draws the curves, and `assets/vendored.json` has its version and digests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

from deepthink_cli.io.text import printable
from deepthink_cli.plugins.pages.samples import Samples
from deepthink_cli.report.figures import COLOURS


@dataclass(frozen=True)
class Table:
    """A table of texts under a caption; it is collapsed at first unless `is_open`."""

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
    band, and are empty without one; `notes` are the texts that name the values. `colour` numbers the colours
    of `report.figures`; the same label has the same number in all charts.
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
    """Charts of one quantity; `about` is the meaning of their lines and bands."""

    title: str
    about: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class WebPage:
    """The content of one HTML file.

    `summary` are the first lines under the title, `legend` explains the tables, `footnotes` follow it. `settings` name
    what made the results, `command` is the line that writes the page; empty if unknown.
    """

    title: str
    summary: Sequence[str]
    tables: Sequence[Table]
    legend: Sequence[str]
    footnotes: Sequence[str]
    curves: Sequence[ChartGroup]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    command: str = ""
    samples: Samples | None = None
    about_samples: Sequence[str] = field(default_factory=tuple)


PACKAGE = "deepthink_cli.plugins.pages"
SCRIPTS = ("decode.js", "samples.js", "grid.js", "tables.js", "charts.js", "detail.js", "browser.js", "main.js")


def render(page: WebPage) -> str:
    """The page as HTML; the same page gives the same text.

    Everything that comes from data is escaped, or packed in base64. The page's Content-Security-Policy allows its own
    scripts and styles, by their digests, and no connection.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    library, own = _file("assets/uplot/uPlot.iife.min.js"), "\n".join(_file(f"templates/{name}") for name in SCRIPTS)
    styles = [_file("assets/uplot/uPlot.min.css"), _file("templates/page.css")]
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    return environment.get_template("page.html").render(
        page=page,
        data={"colours": COLOURS, "charts": [[asdict(chart) for chart in group.charts] for group in page.curves]},
        columns=[] if page.samples is None else page.samples.columns(),
        styles=styles,
        scripts=[library, own],
        licence=_file("assets/uplot/LICENSE"),
        policy=_policy([library, own], styles),
    )


def _shown(value: Any) -> Any:
    """Text with its control characters, changes of writing direction and invalid characters escaped."""
    if type(value) is not str:
        return value
    return printable(value, most=len(value)).encode(errors="backslashreplace").decode()


def _policy(scripts: list[str], styles: list[str]) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(map(_digest, scripts)),
        "style-src": " ".join(map(_digest, styles)),
        "img-src": "data:",
        "connect-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(path: str) -> str:
    return files(PACKAGE).joinpath(path).read_text(encoding="utf-8")
