"""What this plugin adds, named without importing matplotlib: the paper's figures, studies and forms, and LaTeX."""

from __future__ import annotations

from pathlib import Path

from deepthink_cli.experiments.figure import FigureForm
from deepthink_cli.plugins.paper.forms.options import (
    BarsOptions,
    LinesOptions,
    TableOptions,
    ViolinsOptions,
)
from deepthink_cli.report.cells import Published
from deepthink_cli.report.registry import Format

_HERE, _SOURCE = "deepthink_cli.plugins.paper", "Yang et al. 2023, arXiv 2305.13016"
STUDIES = Path(__file__).parent / "studies"
PAPER = Published(
    f"{_HERE}.published:figures_of", f"{_HERE}.published:notes_on", "the paper's figures", f"{_SOURCE}, Tables 1 to 3"
)
LATEX = Format(
    f"{_HERE}.latex:write_report", "tables for booktabs", "https://ctan.org/pkg/booktabs", suffixes=(".tex",)
)
TABLE = FigureForm(
    TableOptions,
    None,
    "methods by tasks, with the paper's figures",
    f"{_SOURCE}, Tables 1 to 3",
    f"{_HERE}.forms.table:latex_table",
)
BARS = FigureForm(
    BarsOptions, f"{_HERE}.forms.compared:draw_bars", "T = 1 beside T, by groups of tasks", f"{_SOURCE}, Figure 3"
)
LINES = FigureForm(
    LinesOptions,
    f"{_HERE}.forms.compared:draw_lines",
    "T = 1 and T over the number of demonstrations",
    f"{_SOURCE}, Figure 4",
)
VIOLINS = FigureForm(
    ViolinsOptions,
    f"{_HERE}.forms.compared:draw_violins",
    "distributions over seeds and orders",
    f"{_SOURCE}, Figure 5",
)
