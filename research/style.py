"""The style of all pictures of the pages: one width, one palette, the same colour for the same thing.

They are as wide as a text column, in type of 7 points; the same data give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from deepthink_cli.plugins.study.figures import save
from deepthink_cli.report.figures import COLOURS, COLUMN, GREY

DPI = 200
DEEPTHINK, OFFICIAL, HARNESS = COLOURS[5], COLOURS[4], GREY  # programs
# Colour and marker of thinking, and of other methods by the labels that they see beyond those of their demonstrations.
THINKS, OWN_LABELS, MORE_LABELS = ((COLOURS[2], "^"), (COLOURS[6], "o"), (COLOURS[3], "s"))


def canvas(height: float) -> Figure:
    """An empty figure as wide as a column, `height` in inches."""
    return Figure(figsize=(COLUMN, height), layout="constrained")


def write(path: Path, draw: Callable[..., Figure], *data: Any) -> None:
    """Draw a figure of data and write it as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(lambda: draw(*data), {path: ".png"}, DPI)
