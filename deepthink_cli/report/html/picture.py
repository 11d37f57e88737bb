"""A chart as an SVG picture, for readers without scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from deepthink_cli.report.figures import COLOURS, GREY, MARKERS, METADATA, STYLE
from deepthink_cli.report.html.page import Chart

SIZE = (4.6, 2.8)  # inches


def picture_of(chart: Chart) -> str:
    """The chart as a `data:` URL; the same chart gives the same text, independently of matplotlib settings."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    file = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**STYLE, "svg.fonttype": "none", "font.family": "sans-serif"})
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for series in chart.series:
            colour, label = COLOURS[series.colour % len(COLOURS)], _plain(series.label)
            marker = "" if series.is_dashed else MARKERS[series.colour % len(MARKERS)]
            style = "--" if series.is_dashed else "-"
            axes.plot(chart.iterations, _numbers(series.values), color=colour, marker=marker, ls=style, label=label)
            if series.low:
                low, high = _numbers(series.low), _numbers(series.high)
                axes.fill_between(chart.iterations, low, high, color=colour, alpha=0.15, linewidth=0)
        if chart.level is not None:
            axes.axhline(chart.level, color=GREY, linewidth=0.7, linestyle="-.", label=_plain(chart.level_name))
        axes.set_xlabel("iterations T")
        axes.set_ylabel(_plain(chart.unit))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(file, format="svg", metadata=METADATA[".svg"])
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _plain(text: str) -> str:
    """Text in which matplotlib finds no mathematics."""
    return text.replace("$", r"\$")
