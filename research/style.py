"""The style of all pictures of the pages: one width, one palette, the same colour for the same thing.

They are as wide as a text column, in type of 7 points; the same data give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deepthink_cli.report.figures import COLOURS, COLUMN, GREY, LEGEND, MARKERS, save

DPI = 200
RAW, CALIBRATED = COLOURS[0], COLOURS[1]  # the model's scores, and those after batch calibration
DEEPTHINK, OFFICIAL, HARNESS = COLOURS[5], COLOURS[4], GREY  # programs
# Colour and marker of thinking, and of other methods by the labels that they see beyond those of their demonstrations.
THINKS, OWN_LABELS, MORE_LABELS = ((COLOURS[2], "^"), (COLOURS[6], "o"), (COLOURS[3], "s"))
SCORES = {"raw scores": RAW, "after batch calibration": CALIBRATED}


def canvas(height: float) -> Figure:
    """An empty figure as wide as a column, `height` in inches."""
    return Figure(figsize=(COLUMN, height), layout="constrained")


def write(path: Path, draw: Callable[..., Figure], *data: Any) -> None:
    """Draw a figure of data and write it as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(lambda: draw(*data), {path: ".png"}, DPI)


def legend(figure: Figure, handles: Sequence[Line2D], columns: int = 2) -> None:
    """A legend above all panels."""
    figure.legend(handles=list(handles), ncols=columns, **{**LEGEND, "handlelength": 1.2})


def of_scores() -> list[Line2D]:
    """The legend's lines of raw and of calibrated scores."""
    return [Line2D([], [], color=colour, label=name) for name, colour in SCORES.items()]


def marks(names: Sequence[str]) -> list[Line2D]:
    """The legend's markers of some names, in their order."""
    return [
        Line2D([], [], linestyle="", marker=MARKERS[place % len(MARKERS)], color=GREY, label=name)
        for place, name in enumerate(names)
    ]
