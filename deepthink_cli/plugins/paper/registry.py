"""What this plugin adds, named without importing matplotlib: the paper's figures, studies and forms, and LaTeX.

The options of a form are what a study file says of its figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from deepthink_cli.report.cells import Published
from deepthink_cli.report.registry import FigureForm, FigureOptions, Format

Reading = Annotated[int, Field(ge=1)]


class ComparedOptions(FigureOptions):
    """`iteration` is the T that is compared with T = 1; None for the last T."""

    iteration: Reading | None = None


class Block(BaseModel):
    """A part of a table: at this T, or, without a T, at the T that was chosen on dev rows.

    `methods` are the ways of choosing demonstrations that have lines; all if there are none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    iteration: Reading | None = None
    methods: list[str] = []


class TableOptions(ComparedOptions):
    """Methods by tasks, in blocks, with the paper's figures; `columns` are tasks and groups, all if there are none.

    `thinking` names the ways of choosing demonstrations for which Deep-Thinking has a line; all if there are none.
    """

    kind: Literal["table"]
    columns: list[str] = Field(default_factory=list)
    blocks: list[Block] = Field([Block()], min_length=1)
    thinking: list[str] = Field(default_factory=list)


class BarsOptions(ComparedOptions):
    """Two bars, T = 1 and T, for each of the `columns`, which are tasks or groups; a panel for each model."""

    kind: Literal["bars"]
    columns: list[str] = Field(default_factory=list)


class LinesOptions(ComparedOptions):
    """Lines for T = 1 and T over an axis of the study; a panel for each task and model."""

    kind: Literal["lines"]
    over: Literal["shots"] = "shots"


class ViolinsOptions(ComparedOptions):
    """The distribution over seeds, and over orders of one seed, of T = 1 and T; a row of panels for each model."""

    kind: Literal["violins"]


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
    f"{_HERE}.table:latex_table",
)
BARS = FigureForm(
    BarsOptions, f"{_HERE}.compared:draw_bars", "T = 1 beside T, by groups of tasks", f"{_SOURCE}, Figure 3"
)
LINES = FigureForm(
    LinesOptions,
    f"{_HERE}.compared:draw_lines",
    "T = 1 and T over the number of demonstrations",
    f"{_SOURCE}, Figure 4",
)
VIOLINS = FigureForm(
    ViolinsOptions, f"{_HERE}.compared:draw_violins", "distributions over seeds and orders", f"{_SOURCE}, Figure 5"
)
