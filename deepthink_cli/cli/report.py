"""`deepthink report`: tables, pages and shared formats of the results of runs."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, table
from deepthink_cli.cli.console import report as print_report
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.output_options import Html, check_page, command_line, write_page
from deepthink_cli.cli.study_folders import study_of, tell_of_missing, titled
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.text import json_line
from deepthink_cli.options import DATA, METHOD, OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.experiments.study import OpenedStudy
    from deepthink_cli.plugins.pages.page import WebPage
    from deepthink_cli.report.formats import Page
    from deepthink_cli.report.job_results import JobResults
    from deepthink_cli.report.page import Report
    from deepthink_cli.report.ranking import Ranking


def check_records(output: Path | None, runs: Collection[Path], **options: object) -> None:
    """Raise InputError unless records can be written to a folder, or for one of the `options` that they do not have."""
    from deepthink_cli.outputs import check_folder_apart

    for name, value in options.items():
        if value:
            raise InputError.of(name, None, "is about tables, and --output-format eee writes none; omit it")
    if output is None:
        raise InputError.of("output_format", "eee", "writes a folder; name it, as in -o records")
    check_folder_apart(output, runs)


def write_evaluations(jobs: Sequence[JobResults], folder: Path, iteration: int | None, quiet: bool) -> None:
    """Write the records of all jobs, and note how many."""
    from deepthink_cli.plugins.pages.every_eval_ever import write_records

    written = write_records(jobs, folder, int(time.time()), iteration)
    note(f"wrote {len(written)} records below {folder / 'data'}", quiet)


TEXT_WIDTH = 100


FormatName = Literal["terminal", "markdown", "csv", "latex", "json", "html", "eee"]
Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Folders of runs or of a study, each with its results.jsonl.")
]
OutputFormat = Annotated[
    FormatName | None,
    Flag(
        OUTPUT,
        "Formatted tables, numbers in [0, 1] as csv and json, a page for a browser as html, or a folder of "
        "records in the schema of Every Eval Ever as eee. Default: terminal.",
        variable=False,
    ),
]
Published = Annotated[
    bool,
    Flag(
        DATA,
        "Show the paper's figures next to those of the run.",
        variable=False,
    ),
]
ReportedIteration = Annotated[
    str | None,
    Flag(
        METHOD,
        "Report this T. Default: the best on the dev rows; without dev rows, the last.",
        "T",
        variable=False,
    ),
]
AllTasks = Annotated[bool, Flag(DATA, "Show every task of a group that has more than ten.", variable=False)]
Where = Annotated[
    list[str] | None,
    Flag(
        DATA,
        "Only rows whose setting has this value, as in eta=0.1; give it several times for several fields, or for "
        "several values of one.",
        "FIELD=VALUE",
        variable=False,
    ),
]
Output = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Output file; the suffix decides the format: .txt, .md, .csv, .tex, .json or .html; with "
        "--output-format eee a folder. Default: stdout.",
        "FILE",
        short="-o",
        variable=False,
    ),
]

SUFFIXES: dict[str, FormatName] = {
    "": "terminal",
    ".txt": "terminal",
    ".md": "markdown",
    ".csv": "csv",
    ".tex": "latex",
    ".json": "json",
    ".html": "html",
}


class ReportArguments(Options):
    """Which rows are reported, how, and where the report is written."""

    at: ReportedIteration = None
    published: Published = False
    all_tasks: AllTasks = False
    where: Where = None
    output_format: OutputFormat = None
    output: Output = None
    html: Html = None


@about("report runs/classic --where eta=0.1 --html report.html", group="Experiments")
@grouped
def report(runs: Runs, *, chosen: ReportArguments, common: Annotated[CommonArguments, Without("verbose")]) -> None:
    """Print tables of runs, or of a study: Deep-Thinking against plain in-context learning, over seeds."""
    write_report(runs, study_of(runs, common.quiet), chosen, common)


def write_report(
    runs: Sequence[Path], opened: OpenedStudy | None, options: ReportArguments, common: CommonArguments
) -> None:
    """Write the report of runs, or of a study; raises InputError for all wrong options."""
    _write_tables(runs, titled(runs, opened), options, common)
    tell_of_missing(opened, runs, common.quiet)


def _write_tables(runs: Sequence[Path], source: str, options: ReportArguments, common: CommonArguments) -> None:
    """Write the report of runs, which `source` names; raises InputError for all wrong options."""
    from deepthink_cli.experiments.shards import shard_warnings
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.report.job_results import read_jobs
    from deepthink_cli.report.page import report_of

    problems, output, html = Problems(), options.output, options.html
    with problems.collected():
        number = _number(options.at)
    with problems.collected():
        if options.output_format == "eee":
            check_records(output, runs, published=options.published, all_tasks=options.all_tasks, html=html)
        elif output is not None:
            check_apart(output, read_by(config=common.config), runs=runs)
        chosen = _format(options.output_format, common.as_json, output)
    with problems.collected():
        check_page(html, read_by(config=common.config), runs)
    with problems.collected():
        jobs = read_jobs(runs, options.where or ())
    problems.raise_any()
    for line in shard_warnings(runs):
        note(f"warning: {line}")
    if chosen == "eee" and output is not None:
        write_evaluations(jobs, output, number, common.quiet)
        return
    page = report_of(source, jobs, number, options.published, options.all_tasks)
    web_page = _web_page(page, jobs, options.all_tasks) if html is not None or chosen == "html" else None
    if output is None:
        _write(page, web_page, chosen, sys.stdout)
    else:
        with writing(output) as file:
            _write(page, web_page, chosen, file)
        note(f"wrote {output}", common.quiet)
    if html is not None and web_page is not None:
        write_page(web_page, html, common.quiet)
    if chosen == "csv":
        for line in page.footnotes:
            note(line, common.quiet)


def _web_page(page: Report, jobs: Sequence[JobResults], tasks: bool) -> WebPage:
    from deepthink_cli.plugins.pages.of_runs import page_of_runs

    return page_of_runs(page, jobs, command_line(), tasks)


def _format(format: FormatName | None, json: bool, output: Path | None) -> FormatName:
    """The requested format, or the one of the output's suffix."""
    if json and format not in (None, "json"):
        raise InputError(f"--json and --output-format {format}: two formats; give one of them")
    if json:
        return "json"
    suffix = "" if output is None else output.suffix.lower()
    if format is None and suffix not in SUFFIXES:
        known = ", ".join(filter(None, SUFFIXES))
        raise InputError.of(
            "output", output, f"unknown format {suffix!r}; end the name in one of {known}, or name an --output-format"
        )
    return format or SUFFIXES[suffix]


def _number(iteration: str | None) -> int | None:
    if iteration is None:
        return None
    if not iteration.isascii() or not iteration.isdecimal():
        raise InputError.of("at", iteration, "a whole number from 1, as in 5")
    return int(iteration)


def _write(page: Report, web_page: WebPage | None, format: FormatName, file: TextIO) -> None:
    from deepthink_cli.report.formats import comma_separated, latex, markdown

    match format:
        case "html":
            from deepthink_cli.plugins.pages.page import render

            assert web_page is not None
            file.write(render(web_page))
        case "terminal":
            print_report(*_parts(page), file=file)
        case "markdown":
            file.write(markdown(page))
        case "latex":
            file.write(latex(page))
        case "csv":
            file.write(comma_separated(page.records()))
        case "json":
            file.write(json_line(_json(page)))
    file.flush()


def _json(page: Report) -> dict[str, Any]:
    return {
        "runs": page.source,
        "title": page.title,
        "rows": page.records(),
        "legend": page.legend,
        "footnotes": page.footnotes,
        **({} if page.ranking is None else {"ranking": _ranking(page.ranking)}),
    }


def _ranking(ranking: Ranking) -> dict[str, Any]:
    from deepthink_cli.report.cells import rounded

    return {
        name: {method: rounded(number) for method, number in value.items()}
        if isinstance(value, dict)
        else rounded(value)
        for name, value in asdict(ranking).items()
    }


def _parts(page: Page) -> list[Any]:
    parts: list[Any] = [f"{page.source}: {page.title}"]
    for heading, rows in page.sections:
        parts += ["", *([heading] if heading else []), table(*page.columns, rows=rows)]
    parts += ["", *(line for text in page.legend for line in _wrapped(text))]
    if page.footnotes:
        parts += ["", *(line for text in page.footnotes for line in _wrapped(text, "* "))]
    return parts if page.appendix is None else [*parts, "", *_parts(page.appendix)]


def _wrapped(text: str, mark: str = "") -> list[str]:
    """Lines of at most `TEXT_WIDTH`, never broken at a hyphen, which may be part of a name."""
    indent = " " * len(mark)
    return textwrap.wrap(
        text,
        TEXT_WIDTH,
        initial_indent=mark,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
