"""The report of one or several runs: rows, tables, legend and footnotes, ready to be written in any format."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import ALPHA
from deepthink_cli.registry import loaded
from deepthink_cli.report.arms import COMPARED, Arm, title, varying
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


@dataclass(frozen=True)
class Report(Page):
    """A page of tables, and the rows that it shows.

    `brief` is the page without `DETAILS`, and with the notes on what is missing alone.
    """

    rows: Sequence[TableRow]
    brief: Page

    def records(self) -> list[dict[str, Any]]:
        """The numbers of every row, to six significant digits; accuracies are in [0, 1]."""
        return [values(row) for row in self.rows]

    def as_json(self) -> dict[str, Any]:
        """The rows with their legend and notes, as JSON values."""
        return {
            "runs": self.source,
            "title": self.title,
            "rows": self.records(),
            "legend": self.legend,
            "footnotes": self.footnotes,
        }


def report_of(
    source: str,
    jobs: Sequence[JobResults],
    iteration: int | None = None,
    published: bool = False,
    tasks: bool = False,
) -> Report:
    """Tables of the jobs of runs: Deep-Thinking against plain in-context learning, over seeds.

    `source` names the runs. `iteration` is the T to report (default: the best on the dev rows; without dev rows, the
    last); `published` adds published figures, such as the paper's; `tasks` shows every task of a group that has more
    than ten. Raises InputError for an iteration that no run has, and for jobs without a row to report.
    """
    rows = [row for row in summarize(jobs, iteration) if tasks or not row.is_detail]
    notes = footnotes(jobs)
    if not rows:
        raise InputError(f"{source}: no seed has test rows at the T to report; score it, see run --at", *notes)
    about = list[str]()
    if published:
        rows, about = _with_published(rows)
        notes += about
    arms = list(dict.fromkeys(row.arm for row in rows))
    columns, sections = _tables(rows)
    same = len({len(row.scores) for row in rows}) == 1  # then the legend has the number of seeds
    short, brief = _tables(rows, (*DETAILS, "seeds") if same else DETAILS)
    return Report(
        source=source,
        title=title(arms),
        columns=columns,
        sections=sections,
        legend=_legend(rows, columns, iteration),
        footnotes=notes,
        rows=rows,
        brief=Page(source, title(arms), short, brief, _legend(rows, short, iteration), [*shortcomings(jobs), *about]),
    )


Sections = list[tuple[str, list[list[str]]]]


def _tables(rows: Sequence[TableRow], hidden: Collection[str] = ()) -> tuple[list[str], Sections]:
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
    if any(row.arm.is_compared_with_plain for row in rows):
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
