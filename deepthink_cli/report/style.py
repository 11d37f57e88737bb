"""The style of every figure, for print: sizes, colours, markers and matplotlib's settings."""

from __future__ import annotations

from typing import Any

# Metadata to omit, by suffix, because it differs between files of the same figure.
METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
COLUMN, PAGE = 3.3, 7.0  # widths in inches
# Okabe and Ito's colours without yellow, which is too pale for a line; markers distinguish them in greyscale.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^Dv<>PX"
GREY = "#555555"
STYLE: Any = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "deepthink",
    "pdf.fonttype": 42,
}
LEGEND: Any = {
    "loc": "outside upper center",
    "frameon": False,
    "handlelength": 2.4,
    "columnspacing": 1.2,
    "labelspacing": 0.3,
    "borderaxespad": 0.2,
}
