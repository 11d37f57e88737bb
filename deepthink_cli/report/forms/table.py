"""Methods by tasks, as the paper's Tables 1 to 3, with the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.figures import GREY
from deepthink_cli.report.forms.canvas import short
from deepthink_cli.report.forms.pairs import distinct
from deepthink_cli.report.forms.spec import Block, TableForm
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.published import published
from deepthink_cli.report.significance import Spread
from deepthink_cli.report.tables import TableRow, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE, LETTER = 0.165, 0.062  # inches of a line and of one character
NUMBER = 0.4  # inches of a number
NAMES = {"sampling": 0, "technique": 1, "calibration": 2}  # what a method's name consists of, before the rest


@dataclass(frozen=True)
class Line:
    """One method: its label, and for each column our accuracy and the paper's in percent, None where there is none."""

    label: str
    is_thinking: bool
    ours: tuple[Spread | None, ...]
    paper: tuple[float | None, ...]


def draw_table(form: TableForm, jobs: Sequence[JobResults]) -> Figure:
    """The table as a figure; the best of ours in every column of a block and model is bold."""
    from matplotlib.figure import Figure

    blocks = [(block, lines_of(form, block, jobs)) for block in form.blocks]
    columns = _columns(form, jobs)
    every = [line for _, lines in blocks for line in lines]
    has_paper = any(value is not None for line in every for value in line.paper)
    first = 0.2 + LETTER * max(len(line.label) for line in every)
    cell = NUMBER * (2 if has_paper else 1) + 0.14
    titles = sum(bool(block.title) for block in form.blocks)
    height = LINE * (len(every) + 1.6 * titles + (3.2 if has_paper else 2.2)) + 0.5
    figure = Figure(figsize=(first + cell * len(columns) + 0.1, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, figure.get_size_inches()[0])
    axes.set_ylim(height, 0)
    axes.axis("off")
    rows = _Rows(axes, first, cell, has_paper)
    rows.head(columns)
    for block, lines in blocks:
        rows.block(block, lines)
    rows.foot(_about(jobs, has_paper))
    return figure


def lines_of(form: TableForm, block: Block, jobs: Sequence[JobResults]) -> list[Line]:
    """The lines of a block: every arm at T = 1, then at the block's T."""
    rows = [row for row in summarize(jobs, block.iteration) if row.name in _columns(form, jobs)]
    arms = distinct_arms(rows)
    names = varying(arms)
    lines: dict[tuple[str, bool, str], Line] = {}
    for is_thinking in (False, True):
        for arm in arms:
            is_wanted = not (is_thinking and form.thinking) or arm.sampling in form.thinking
            if is_wanted:
                label = _label(arm, names, is_thinking, block)
                lines.setdefault((arm.model, is_thinking, label), _line(form, rows, jobs, arm, label, is_thinking))
    models = distinct([arm.model for arm in arms])
    return sorted(lines.values(), key=lambda line: _place(models, lines, line))


def _place(models: Sequence[str], lines: dict[tuple[str, bool, str], Line], line: Line) -> int:
    """The model's place: the lines of a model stay together, in their order."""
    return next(models.index(model) for (model, _, _), each in lines.items() if each is line)


def distinct_arms(rows: Sequence[TableRow]) -> list[Arm]:
    """The arms of rows, in their order."""
    return list(dict.fromkeys(row.arm for row in rows))


def _columns(form: TableForm, jobs: Sequence[JobResults]) -> list[str]:
    rows = summarize(jobs)
    names = distinct([row.name for row in rows if not row.is_detail])
    columns = [name for name in form.columns or names if name in names]
    if not columns:
        raise InputError("figure: there are no rows of its columns at T = 1 and at T yet; let the study run on")
    return columns


def _line(
    form: TableForm, rows: Sequence[TableRow], jobs: Sequence[JobResults], arm: Arm, label: str, is_thinking: bool
) -> Line:
    ours, paper = list[Spread | None](), list[float | None]()
    for name in _columns(form, jobs):
        row = next((row for row in rows if row.arm == arm and row.name == name), None)
        spread = None if row is None else row.thinking if is_thinking else row.plain
        ours.append(spread)
        figures = published().find(arm.model, name, bool(row and row.on_dev), arm.sampling)
        is_papers = not (arm.technique or arm.calibration or arm.score or arm.update)
        cell = figures[is_thinking] if is_papers else None
        paper.append(None if cell is None else cell.accuracy)
    return Line(label, is_thinking, tuple(ours), tuple(paper))


def _label(arm: Arm, names: Sequence[str], is_thinking: bool, block: Block) -> str:
    """The model, what else distinguishes the arm, and the method."""
    reading = ("eta", "momentum", "positions", "update")
    kept = [name for name in names if name not in ("model", *(() if is_thinking else reading))]
    others = arm.label(kept, short=True).replace(" sampling", "")
    model = short(arm.model) if "model" in names else ""
    thinking = f"Deep-Thinking, T = {block.iteration}" if block.iteration else "Deep-Thinking"
    return ", ".join(filter(None, [model, others, thinking if is_thinking else "ICL"]))


def _about(jobs: Sequence[JobResults], has_paper: bool) -> str:
    seeds = len({str(job.seed) for job in jobs})
    models = distinct([job.arm.model for job in jobs])
    mean = "one seed" if seeds == 1 else f"mean of {seeds} seeds"
    paper = "grey: the paper's figures" if has_paper else "the paper has no figures for these models"
    named = f"{short(models[0])}; " if len(models) == 1 else ""
    return f"{named}accuracy in %, {mean}; {paper}"


class _Rows:
    """Writes the table line by line from the top."""

    def __init__(self, axes: Axes, first: float, cell: float, has_paper: bool) -> None:
        self.axes, self.first, self.cell, self.has_paper = axes, first, cell, has_paper
        self.width = axes.get_xlim()[1]
        self.y = 0.12

    def rule(self, width: float) -> None:
        self.axes.plot([0.05, self.width - 0.05], [self.y, self.y], color="black", linewidth=width, clip_on=False)

    def head(self, columns: Sequence[str]) -> None:
        """The names of the columns, and below each whose figures they are."""
        self.rule(1.0)
        self.y += LINE
        for number, name in enumerate(columns):
            left = self.first + self.cell * number
            centre = left + (self.cell - 0.14) / 2
            self.axes.text(centre, self.y, name, ha="center", va="center", weight="bold")
            if self.has_paper:
                for side, text in ((0.5, "ours"), (1.5, "paper")):
                    self._number(left + NUMBER * side, self.y + LINE, text, color=GREY, size=6)
        self.y += LINE * (1.8 if self.has_paper else 0.8)

    def block(self, block: Block, lines: Sequence[Line]) -> None:
        """The title of a block between rules, and its lines."""
        self.rule(0.6)
        if block.title:
            self.y += LINE * 0.8
            self.axes.text(self.width / 2, self.y, block.title, ha="center", va="center", style="italic")
            self.y += LINE * 0.8
            self.rule(0.4)
        best = [max(filter(None, (_mean(line, n) for line in lines)), default=None) for n in range(len(lines[0].ours))]
        self.y += LINE * 0.2
        for line in lines:
            self.y += LINE * 0.8
            self.axes.text(0.1, self.y, line.label, va="center", weight="bold" if line.is_thinking else "normal")
            for number, paper in enumerate(line.paper):
                left, mean = self.first + self.cell * number, _mean(line, number)
                weight = "bold" if mean is not None and mean == best[number] else "normal"
                self._number(left + NUMBER / 2, self.y, "-" if mean is None else f"{mean:.1f}", weight=weight)
                if self.has_paper:
                    self._number(left + NUMBER * 1.5, self.y, "" if paper is None else f"{paper:.1f}", color=GREY)
            self.y += LINE * 0.2
        self.y += LINE * 0.5

    def foot(self, text: str) -> None:
        """The last rule and what the numbers are."""
        self.rule(1.0)
        self.axes.text(0.1, self.y + 0.15, text, va="center", fontsize=6.5, color=GREY)

    def _number(self, x: float, y: float, text: str, **look: object) -> None:
        self.axes.text(x, y, text, ha="center", va="center", **look)  # type: ignore[arg-type]


def _mean(line: Line, column: int) -> float | None:
    spread = line.ours[column]
    return None if spread is None else round(100 * spread.mean, 1)
