"""The report of one or several runs: rows, tables, legend and footnotes, ready to be written in any format."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import ALPHA
from deepthink_cli.registry import loaded
from deepthink_cli.report.arms import COMPARED, Arm, is_rival, title, varying
from deepthink_cli.report.cells import PUBLISHED, texts, values
from deepthink_cli.report.footnotes import footnotes, shortcomings
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.tables import TableRow, summarize

DETAILS = ("p", "McNemar", "oracle")  # columns that a brief page leaves out


@dataclass(frozen=True)
class Page:
    """Tables with the same columns, each with a heading (empty for a single table), a legend and footnotes.

    `source` names the runs.
    """

    source: str
    title: str
    columns: Sequence[str]
    sections: Sequence[tuple[str, Sequence[Sequence[str]]]]
    legend: Sequence[str]
    footnotes: Sequence[str]


@dataclass(frozen=True, eq=False)
class Report:
    """The jobs of runs in tables: Deep-Thinking against plain in-context learning, over seeds.

    `source` names the runs. `iteration` is the T to report (default: the best on the dev rows; without dev rows, the
    last); `published` adds published figures, such as the paper's; `all_tasks` shows every task of a group that has
    more than ten; `details` asks a format that has a brief form for the whole one. `line` is the command line of the
    report. What is made of them raises InputError for an iteration that no run has, and for jobs without a row to
    report.
    """

    source: str
    jobs: Sequence[JobResults]
    iteration: int | None = None
    published: bool = False
    all_tasks: bool = False
    details: bool = False
    line: str = ""

    @cached_property
    def _found(self) -> tuple[list[TableRow], list[str]]:
        rows = [row for row in summarize(self.jobs, self.iteration) if self.all_tasks or not row.is_detail]
        if not rows:
            reason = "no seed has test rows at the T to report; score it, see run --at"
            raise InputError(f"{self.source}: {reason}", *footnotes(self.jobs))
        return _with_published(rows) if self.published else (rows, [])

    @property
    def rows(self) -> list[TableRow]:
        """The rows of the tables, with the published figures."""
        return self._found[0]

    @cached_property
    def page(self) -> Page:
        """The tables with all columns and footnotes."""
        return self._page((), footnotes(self.jobs))

    @cached_property
    def brief(self) -> Page:
        """The tables without `DETAILS`, with footnotes on what is missing alone."""
        same = len({len(row.scores) for row in self.rows}) == 1  # then the legend has the number of seeds
        return self._page((*DETAILS, "seeds") if same else DETAILS, shortcomings(self.jobs))

    def _page(self, hidden: Collection[str], notes: Sequence[str]) -> Page:
        rows, about = self._found
        columns, sections = _tables(rows, hidden)
        arms = list(dict.fromkeys(row.arm for row in rows))
        return Page(
            self.source, title(arms), columns, sections, _legend(rows, columns, self.iteration), [*notes, *about]
        )

    def records(self) -> list[dict[str, Any]]:
        """The numbers of every row, to six significant digits; accuracies are in [0, 1]."""
        return [values(row) for row in self.rows]

    def as_json(self) -> dict[str, Any]:
        """The rows with their legend and notes, as JSON values."""
        return {
            "runs": self.source,
            "title": self.page.title,
            "rows": self.records(),
            "legend": self.page.legend,
            "footnotes": self.page.footnotes,
        }


Sections = list[tuple[str, list[list[str]]]]


def _tables(rows: Sequence[TableRow], hidden: Collection[str]) -> tuple[list[str], Sections]:
    """The columns that have figures, without the `hidden` ones, and the tables.

    There is a table for each arm with a row for each task; if arms differ in their methods, a table for each task or
    mean with a row for each arm, named by its distinctive fields.
    """
    varied = varying(list(dict.fromkeys(row.arm for row in rows)))
    by_task = bool(set(varied) & set(COMPARED))
    cells = [{"method": row.arm.label(varied, short=True), **texts(row)} for row in rows]
    left_out = {*hidden, "task" if by_task else "method"}
    columns = [name for name in cells[0] if name not in left_out and any(each[name] for each in cells)]
    tables: dict[Arm | str, tuple[str, list[list[str]]]] = {}
    for row, each in zip(rows, cells, strict=True):
        key, heading = (each["task"], each["task"]) if by_task else (row.arm, row.arm.label(varied))
        tables.setdefault(key, (heading, []))[1].append([each[name] for name in columns])
    return columns, list(tables.values())


def _with_published(rows: Sequence[TableRow]) -> tuple[list[TableRow], list[str]]:
    """The rows with figures of the first publication that has any for them, and its notes."""
    shown, notes = list(rows), list[str]()
    for published in PUBLISHED.values():
        found = {}
        for place, row in enumerate(shown):
            plain, thinking = (None, None) if row.paper_table else loaded(published.find)(row)
            if plain is not None or thinking is not None:
                found[place] = replace(row, paper_plain=plain, paper_thinking=thinking)
        shown = [found.get(place, row) for place, row in enumerate(shown)]
        notes += loaded(published.notes)(list(found.values()))
    return shown, notes


def _legend(rows: Sequence[TableRow], columns: Sequence[str], iteration: int | None) -> list[str]:
    """The meaning of the columns."""
    free = "T and eta" if any(row.arm.chooses_eta for row in rows) else "T"
    legend = [
        f"ICL: plain in-context learning, T = 1. Deep-Thinking: {_reported(rows, free, iteration)}. Accuracy in "
        f"percent{_averaged({len(row.scores) for row in rows})}."
    ]
    if "p" in columns:
        least = 2.0 ** (1 - max(len(row.scores) for row in rows))
        bound = f"; so few seeds cannot give less than {least:.3f}" if least > ALPHA else ""
        legend.append(
            "95 % interval: Student's, of the difference; p: exact Wilcoxon signed-rank test over seeds, two-sided"
            f"{bound}."
        )
    elif "95 % interval" in columns:
        legend.append("95 % interval: Student's, of the difference.")
    if any(row.gain is not None and row.gain.ci95 is None and len(row.scores) > 1 for row in rows):
        legend.append("No interval: all seeds have the same difference, which says nothing about how much it varies.")
    if "McNemar" in columns:
        legend.append(
            f"McNemar: seeds that are better / worse at p < {ALPHA}, exact, on the answers to the same inputs."
        )
    if any(is_rival(row.arm.technique) for row in rows):
        legend.append(
            "Rows of another technique (ct-kv, repeated demonstrations, an ensemble) have its accuracy in the column "
            "Deep-Thinking, and that of plain in-context learning with the same demonstrations in the column ICL."
        )
    if not all(row.arm.baseline_is_plain for row in rows):
        legend.append("Rows with other label words (flipped, fresh) have their own T = 1 in the column ICL.")
    if any(row.is_mean for row in rows):
        of_means = "; their McNemar is over all their inputs" if "McNemar" in columns else ""
        legend.append(f"Means are over tasks within each seed, then over seeds{of_means}.")
    if "oracle" in columns:
        legend.append(
            f"Oracle: each seed's best {free} on the test rows themselves, which is a bound and not a result."
        )
    return legend


def _averaged(seeds: set[int]) -> str:
    """What a cell is of one or several numbers of seeds, as text."""
    if seeds == {1}:
        return ", of one seed; difference: Deep-Thinking less ICL"
    counted = f"{min(seeds)} seeds" if len(seeds) == 1 else "seeds"
    return f", mean ± sample standard deviation over {counted}; difference: Deep-Thinking less ICL, paired by seed"


def _reported(rows: Sequence[TableRow], free: str, iteration: int | None) -> str:
    """The T at which rows are reported, as text; `free` names the parameters chosen on dev rows."""
    if iteration is not None:
        return f"at T = {iteration}"
    chosen = [row.on_dev for row in rows]
    if not any(chosen):
        return "at the last T"
    rest = "" if all(chosen) else ", at the last T if there are none"
    return f"at the {free} that each seed's own dev rows choose (of more than two, median and range){rest}"
