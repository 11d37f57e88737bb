"""Methods by tasks, as the paper's Tables 1 to 3, with the paper's figures beside ours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.plugins.paper.forms.canvas import distinct, short
from deepthink_cli.plugins.paper.forms.options import Block, TableOptions
from deepthink_cli.plugins.paper.published import is_papers, published
from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.significance import Spread
from deepthink_cli.report.style import COLUMN, GREY
from deepthink_cli.report.tables import TableRow, groups_of, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE, LETTER = 0.165, 0.062  # inches of a line and of one character
NUMBER = 0.4  # inches of a number
GAP = 0.14  # inches between two columns


@dataclass(frozen=True)
class Line:
    """One method: its label, and for each column our accuracy and the paper's in percent, None where there is none."""

    model: str
    label: str
    is_thinking: bool
    ours: tuple[Spread | None, ...]
    paper: tuple[float | None, ...]


@dataclass(frozen=True)
class TableContent:
    """What a table has: names of columns, their headings, and the lines of each block."""

    columns: list[str]
    headings: list[str]
    blocks: list[tuple[Block, list[Line]]]

    @property
    def has_paper(self) -> bool:
        """Whether the paper has figures for some of the lines."""
        return any(value is not None for _, lines in self.blocks for line in lines for value in line.paper)


def content_of(form: TableOptions, jobs: Sequence[JobResults]) -> TableContent:
    """What the table of a study shows; raises InputError if there are no rows of its columns yet."""
    columns = _columns(form, summarize(jobs))
    blocks = [(block, lines_of(form, block, jobs, columns)) for block in _within(form.blocks, jobs)]
    filled = [(block, lines) for block, lines in blocks if lines]
    return TableContent(columns, [_heading(name, columns, jobs) for name in columns], filled)


def draw_table(form: TableOptions, jobs: Sequence[JobResults]) -> Figure:
    """The table as a figure; the best of ours is bold in every column, block and model."""
    from matplotlib.figure import Figure

    content = content_of(form, jobs)
    columns, has_paper = content.columns, content.has_paper
    every = [line for _, lines in content.blocks for line in lines]
    first = 0.2 + LETTER * max(len(line.label) for line in every)
    cell = NUMBER * (2 if has_paper else 1) + GAP
    width = max(first + cell * len(columns) + 0.1, COLUMN)
    foot = textwrap.wrap(_about(jobs, has_paper), int(width * 19))
    titles = sum(bool(block.title) for block, _ in content.blocks)
    height = (
        LINE * (len(every) + 1.6 * titles + (2.9 if has_paper else 2.0) + 0.5 * len(content.blocks) + len(foot)) + 0.25
    )
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    rows = _Rows(axes, width - cell * len(columns), cell, has_paper)
    rows.head(content.headings)
    for block, lines in content.blocks:
        rows.block(block, lines)
    rows.foot(foot)
    return figure


def lines_of(form: TableOptions, block: Block, jobs: Sequence[JobResults], columns: Sequence[str]) -> list[Line]:
    """The lines of a block: for each model every baseline, then every arm at the block's T.

    They have the order of the block's methods, or without methods the order of the jobs.
    """
    rows = [row for row in summarize(jobs, block.iteration) if row.name in columns]
    families = list(dict.fromkeys(job.arm.family for job in jobs))
    arms = sorted(
        dict.fromkeys(row.arm for row in rows),
        key=lambda arm: (_place(arm.sampling, block.methods), families.index(arm.family)),
    )
    names, lines = varying(arms), dict[tuple[str, str], Line]()
    arms = [arm for arm in arms if not block.methods or arm.sampling in block.methods]
    for model in distinct([arm.model for arm in arms]):
        for is_thinking in (False, True):
            for arm in arms:
                if arm.model == model and not (is_thinking and form.thinking and arm.sampling not in form.thinking):
                    of_arm = {row.name: row for row in rows if row.arm == arm}
                    if not is_thinking and all(row.plain is None for row in of_arm.values()):
                        continue
                    label = _label(arm, names, _method(block, of_arm.values()) if is_thinking else None)
                    lines.setdefault((model, label), _line(label, arm, of_arm, columns, is_thinking))
    return list(lines.values())


def _place(sampling: str | None, methods: Sequence[str]) -> int:
    return methods.index(sampling) if sampling in methods else 0


def _within(blocks: Sequence[Block], jobs: Sequence[JobResults]) -> list[Block]:
    """The blocks; a T beyond the last, in a study's small scale, becomes the last T."""
    last = max((t for job in jobs for t in job.test), default=1)
    return [block.model_copy(update={"iteration": block.iteration and min(block.iteration, last)}) for block in blocks]


def _columns(form: TableOptions, rows: Sequence[TableRow]) -> list[str]:
    names = distinct([row.name for row in rows if not row.is_detail or row.name in form.columns])
    columns = [name for name in form.columns or names if name in names]
    if not columns:
        raise InputError("figure: there are no rows of its columns at T = 1 and at T yet; continue the study")
    return columns


def _heading(name: str, columns: Sequence[str], jobs: Sequence[JobResults]) -> str:
    """The name of a column; `average` for a group whose tasks have columns as well."""
    return "average" if {*groups_of(jobs).get(name, [])} & {*columns} else name


def _line(label: str, arm: Arm, rows: Mapping[str, TableRow], columns: Sequence[str], is_thinking: bool) -> Line:
    ours, paper = list[Spread | None](), list[float | None]()
    has_paper = is_papers(arm)
    for name in columns:
        row = rows.get(name)
        ours.append(None if row is None else row.thinking if is_thinking else row.plain)
        figures = (
            published().find(arm.model, name, bool(row and row.on_dev), arm.sampling) if has_paper else (None, None)
        )
        cell = figures[is_thinking]
        paper.append(None if cell is None else cell.accuracy)
    return Line(arm.model, label, is_thinking, tuple(ours), tuple(paper))


def _method(block: Block, rows: Iterable[TableRow]) -> str:
    if block.iteration:
        return f"Deep-Thinking, T = {block.iteration}"
    return "Deep-Thinking, T by dev" if any(row.on_dev for row in rows) else "Deep-Thinking"


def _label(arm: Arm, names: Sequence[str], method: str | None) -> str:
    """The model, what else distinguishes the arm, and the method; without a method its baseline."""
    kept = [name for name in names if name != "model"]
    model = short(arm.model) if "model" in names else ""
    words = arm.baseline_label(kept, short=True) if method is None else arm.label(kept, short=True)
    return ", ".join(filter(None, [model, words.replace(" sampling", ""), method or "ICL"]))


def _about(jobs: Sequence[JobResults], has_paper: bool) -> str:
    models = distinct([job.arm.model for job in jobs])
    none = f"the paper has no figures for {', '.join(map(short, models))}"
    named = f"{short(models[0])}; " if len(models) == 1 else ""
    return f"{named}accuracy in %, {mean_over(jobs)}; {'grey: the paper' if has_paper else none}"


class _Rows:
    """Writes the table line by line from the top."""

    def __init__(self, axes: Axes, first: float, cell: float, has_paper: bool) -> None:
        self.axes, self.first, self.cell, self.has_paper = axes, first, cell, has_paper
        self.width = axes.get_xlim()[1]
        self.y = 0.12

    def rule(self, width: float) -> None:
        self.axes.plot([0.05, self.width - 0.05], [self.y, self.y], color="black", linewidth=width, clip_on=False)

    def head(self, columns: Sequence[str]) -> None:
        """The names of the columns, and below each the origin of its figures."""
        self.rule(1.0)
        self.y += LINE
        for number, name in enumerate(columns):
            left = self.first + self.cell * number
            centre = left + (self.cell - GAP) / 2
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
        best = best_of(lines)
        self.y += LINE * 0.2
        for line in lines:
            self.y += LINE * 0.8
            self.axes.text(0.1, self.y, line.label, va="center")
            for number, paper in enumerate(line.paper):
                left, mean = self.first + self.cell * number, mean_of(line, number)
                weight = "bold" if mean is not None and mean == best.get((line.model, number)) else "normal"
                self._number(left + NUMBER / 2, self.y, "-" if mean is None else f"{mean:.1f}", weight=weight)
                if self.has_paper:
                    self._number(left + NUMBER * 1.5, self.y, "" if paper is None else f"{paper:.1f}", color=GREY)
            self.y += LINE * 0.2
        self.y += LINE * 0.5

    def foot(self, lines: Sequence[str]) -> None:
        """The bottom rule, and the notes under it."""
        self.rule(1.0)
        self.axes.text(0.1, self.y + 0.07, "\n".join(lines), va="top", fontsize=6.5, color=GREY)

    def _number(self, x: float, y: float, text: str, **look: object) -> None:
        self.axes.text(x, y, text, ha="center", va="center", **look)  # type: ignore[arg-type]


def mean_over(jobs: Sequence[JobResults]) -> str:
    """The number of seeds in the mean accuracies, in words."""
    seeds = len({str(job.seed) for job in jobs})
    return "one seed" if seeds == 1 else f"mean of {seeds} seeds"


def best_of(lines: Sequence[Line]) -> dict[tuple[str, int], float]:
    """The best accuracy of ours in a block, by model and column, as it is printed; only where lines can be compared."""
    means = dict[tuple[str, int], list[float]]()
    for line in lines:
        for number in range(len(line.ours)):
            if (mean := mean_of(line, number)) is not None:
                means.setdefault((line.model, number), []).append(mean)
    return {place: max(values) for place, values in means.items() if len(values) > 1}


def mean_of(line: Line, column: int) -> float | None:
    """Our accuracy in percent as it is printed, with one decimal, or None."""
    spread = line.ours[column]
    return None if spread is None else round(100 * spread.mean, 1)
