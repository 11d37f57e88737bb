"""`deepthink report`: the tables of one or several runs, as one would print them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from deepthink_cli.cli.console import json_line, note, table
from deepthink_cli.cli.console import report as print_report
from deepthink_cli.cli.formats import Page, comma_separated, latex, markdown
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import DATA, METHOD, OUTPUT, CommonArguments
from deepthink_cli.cli.reads import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.report.cells import ReportLine, texts, values

if TYPE_CHECKING:
    from deepthink_cli.report.jobs import JobResults
    from deepthink_cli.report.summary import TableRow

TEXT_WIDTH = 100


FormatName = Literal["terminal", "markdown", "csv", "latex", "json"]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, each with its results.jsonl.")]
Format = Annotated[
    FormatName | None,
    typer.Option(
        "--format",
        rich_help_panel=OUTPUT,
        help="Tables for people, or raw numbers as csv and json. Default: terminal.",
        show_default=False,
    ),
]
Published = Annotated[
    bool, typer.Option("--published", rich_help_panel=DATA, help="Put the paper's figures beside those of the run.")
]
Iteration = Annotated[
    str | None,
    typer.Option(
        "--iteration",
        metavar="T",
        rich_help_panel=METHOD,
        help="Report this T. Default: what the dev rows choose; without dev rows, the last.",
    ),
]
Tasks = Annotated[
    bool, typer.Option("--tasks", rich_help_panel=DATA, help="Show every task of a group that has more than ten.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Where the report goes. Default: stdout."
    ),
]

SUFFIXES: dict[str, FormatName] = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


@grouped
def report(
    runs: Runs,
    iteration: Iteration = None,
    published: Published = False,
    tasks: Tasks = False,
    format: Format = None,
    output: Output = None,
    *,
    common: Annotated[CommonArguments, Without("verbose")],
) -> None:
    """Tables of one or several runs: thinking against plain in-context learning, over seeds."""
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.report.footnotes import footnotes
    from deepthink_cli.report.summary import summarize
    from deepthink_cli.workflows.outputs import check_apart

    problems = Problems()
    with problems.collected():
        wanted = _format(format, common.json, output)
    with problems.collected():
        number = _number(iteration)
    with problems.collected():
        if output is not None:
            check_apart(output, read_by(config=common.config), runs=runs)
    jobs = read_jobs(runs, problems)
    rows = [row for row in summarize(jobs, number) if tasks or not row.is_detail]
    notes = footnotes(jobs)
    if not rows:
        raise InputError(f"{_names(runs)}: no seed has test rows at T = 1 and at the T to report", *notes)
    lines = _with_paper(rows) if published else [ReportLine(row) for row in rows]
    if published:
        notes += _about_paper(lines)
    page = _page(_names(runs), lines, notes, number)
    if output is None:
        _write(page, lines, wanted, sys.stdout)
    else:
        with writing(output) as file:
            _write(page, lines, wanted, file)
        note(f"wrote {output}", common.quiet)
    if wanted == "csv":
        for line in notes:
            note(line, common.quiet)


def read_jobs(runs: Sequence[Path], problems: Problems) -> list[JobResults]:
    """The jobs of all runs; raises everything collected so far together with what is wrong with a run."""
    from deepthink_cli.report.jobs import jobs_of
    from deepthink_cli.runs.results import FILE, read_results

    results = []
    for run in runs:
        with problems.collected():
            if not run.is_dir():
                raise InputError(f"RUN {run}: no such folder; give the folder of a deepthink run")
            own = read_results(run)
            if not own:
                raise InputError(f"RUN {run}: {FILE} has no rows yet; let the run finish a job first")
            results += own
    problems.raise_any()
    return jobs_of(results)


def _format(format: FormatName | None, json: bool, output: Path | None) -> FormatName:
    """The format that is asked for, or that the output's name ends with."""
    if json and format not in (None, "json"):
        raise InputError(f"--json and --format {format}: two formats; give one of them")
    if json:
        return "json"
    named = SUFFIXES.get(output.suffix.lower()) if output is not None else None
    return format or named or "terminal"


def _number(iteration: str | None) -> int | None:
    if iteration is None:
        return None
    if not iteration.isascii() or not iteration.isdecimal():
        raise InputError(f"--iteration {iteration}: a whole number from 1, as in 5")
    return int(iteration)


def _names(runs: Sequence[Path]) -> str:
    return ", ".join(map(str, runs))


def _with_paper(rows: Sequence[TableRow]) -> list[ReportLine]:
    from deepthink_cli.report.published import published

    paper = published()
    return [ReportLine(row, *paper.find(row.arm.model, row.name, dev=row.on_dev)) for row in rows]


def _about_paper(lines: Sequence[ReportLine]) -> list[str]:
    """Where the paper's figures come from, and where they are not of the same kind."""
    from deepthink_cli.report.published import published

    paper = published()
    found = [line for line in lines if line.table]
    if not found:
        return ["The paper has no figures for these models and tasks"]
    numbers = sorted({line.table for line in found if line.table})
    said = [f"Paper: {paper.source}, Table {' and '.join(map(str, numbers))}; means of ten seeds"]
    if any(number > 1 for number in numbers):
        said.append("Paper: Tables 2 and 3 do not say whether T was chosen on a dev set")
    cells = [cell for line in found for cell in (line.paper_plain, line.paper_thinking) if cell]
    said += dict.fromkeys(f"Paper: {cell.note}" for cell in cells if cell.note)
    for line in found:
        theirs = paper.tasks_of_mean(line.row.name)
        if theirs not in (None, line.row.tasks):
            said.append(f"Paper: {line.row.name} is a mean of {theirs} tasks there, of {line.row.tasks} here")
    return list(dict.fromkeys(said))


def _page(runs: str, lines: Sequence[ReportLine], notes: Sequence[str], iteration: int | None) -> Page:
    """A section for each arm; columns that are empty everywhere are left out."""
    from deepthink_cli.report.jobs import label, shared, varying

    arms = list(dict.fromkeys(line.row.arm for line in lines))
    cells = {line: texts(line) for line in lines}
    columns = [name for name in texts(lines[0]) if any(cells[line][name] for line in lines)]
    sections = [
        (label(arm, varying(arms)), [[cells[line][name] for name in columns] for line in lines if line.row.arm == arm])
        for arm in arms
    ]
    return Page(runs, label(arms[0], shared(arms)), columns, sections, _legend(lines, columns, iteration), notes)


def _legend(lines: Sequence[ReportLine], columns: Sequence[str], iteration: int | None) -> list[str]:
    rows = [line.row for line in lines]
    chosen = [row.on_dev for row in rows]
    free = "T and eta" if any(row.arm.eta is None for row in rows) else "T"
    if iteration is not None:
        which = f"at T = {iteration}"
    elif any(chosen):
        which = f"at the {free} that each seed's own dev rows choose (median and range)"
        which += "" if all(chosen) else ", at the last T where there are none"
    else:
        which = "at the last T"
    said = [
        f"ICL: plain in-context learning, T = 1. Deep-Thinking: {which}. Accuracy in percent, mean ± sample standard "
        "deviation over seeds; difference: Deep-Thinking less ICL, paired by seed."
    ]
    if "p" in columns:
        least = 2.0 ** (1 - max(len(row.scores) for row in rows))
        bound = f"; so few seeds cannot give less than {least:.3f}" if least > 0.05 else ""
        said.append(
            "95 % interval: Student's, of the difference; p: exact Wilcoxon signed-rank test over seeds, two-sided"
            + bound
            + "."
        )
    said.append("McNemar: seeds that are better / worse at p < 0.05, exact, on the answers to the same inputs.")
    if any(row.is_mean for row in rows):
        said.append("Means are over tasks within each seed, then over seeds; their McNemar is over all their inputs.")
    said.append(f"Oracle: each seed's best {free} on the test rows themselves, which is a bound and not a result.")
    return said


def _write(page: Page, lines: Sequence[ReportLine], format: FormatName, file: TextIO) -> None:
    if format == "terminal":
        print_report(*_parts(page), file=file)
        return
    raw = [values(line) for line in lines]
    text = {
        "markdown": lambda: markdown(page),
        "latex": lambda: latex(page),
        "csv": lambda: comma_separated(raw),
        "json": lambda: json_line({"runs": page.source, "title": page.title, "rows": raw, "legend": page.legend, "footnotes": page.footnotes}),
    }  # fmt: skip
    file.write(text[format]())
    file.flush()


def _parts(page: Page) -> list[Any]:
    parts: list[Any] = [f"{page.source}: {page.title}"]
    for heading, rows in page.sections:
        parts += ["", *([heading] if heading else []), table(*page.columns, rows=rows)]
    parts += ["", *(line for text in page.legend for line in _wrapped(text))]
    if page.footnotes:
        parts += ["", *(line for text in page.footnotes for line in _wrapped(text, "* "))]
    return parts


def _wrapped(text: str, mark: str = "") -> list[str]:
    # A hyphen may stand in a name that someone will copy.
    return textwrap.wrap(text, TEXT_WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark),
                         break_on_hyphens=False, break_long_words=False)  # fmt: skip
