"""`deepthink report`: tables, pages and shared formats of the results of runs."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from pydantic import Field

from deepthink_cli.cli.about import about
from deepthink_cli.cli.command import command_line
from deepthink_cli.cli.console import Show, note, table
from deepthink_cli.cli.console import report as print_report
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import CommonArguments, Details
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.options import DATA, METHOD, OUTPUT, Flag, Options
from deepthink_cli.report.cells import PUBLISHED
from deepthink_cli.report.registry import FORMATS

if TYPE_CHECKING:
    from deepthink_cli.report.page import Page, Report

TEXT_WIDTH = 80


Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Folders of runs or of a study, each with its results.jsonl.")
]
TABLES = ("terminal", "markdown", "csv", "json")
_OTHERS = [f"{name}: {each.summary}." for name, each in FORMATS.items() if name not in TABLES]
_SUFFIXES = [suffix for each in FORMATS.values() for suffix in each.suffixes if suffix]
_FOLDERS = " or ".join(f"--output-format {name}" for name, each in FORMATS.items() if each.is_folder)
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


class ReportArguments(Options):
    """Options of a report: its rows, its form, and its file."""

    at: Annotated[
        int | None,
        Field(ge=1),
        Flag(
            METHOD,
            "Report this T. Default: the best on the dev rows; without dev rows, the last.",
            "T",
            hint="a whole number from 1, as in 5",
            variable=False,
        ),
    ] = None
    published: Annotated[
        bool,
        Flag(
            DATA,
            f"Show {' and '.join(each.summary for each in PUBLISHED.values())} next to those of the run.",
            variable=False,
        ),
    ] = False
    all_tasks: AllTasks = False
    where: Where = None
    details: Details = False
    output_format: Annotated[
        str | None,
        Flag(
            OUTPUT,
            " ".join(["Formatted tables, or numbers in [0, 1] as csv and json.", *_OTHERS, "Default: terminal."]),
            names=lambda: FORMATS,
            variable=False,
        ),
    ] = None
    output: Annotated[
        Path | None,
        Flag(
            OUTPUT,
            f"Output file; the suffix decides the format: {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"
            f"{_FOLDERS and f'; with {_FOLDERS} a folder'}. Default: stdout.",
            "FILE",
            short="-o",
            variable=False,
        ),
    ] = None


Reporting = Annotated[ReportArguments, Without(*(() if PUBLISHED else ("published",)))]


@about("report runs/classic --where eta=0.1 -o report.md")
@grouped
def report(runs: Runs, *, chosen: Reporting, common: Annotated[CommonArguments, Without("verbose")]) -> None:
    """Print tables of runs or of a study, against T = 1."""
    from deepthink_cli.experiments.folder import shard_warnings
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.outputs import check_apart, check_folder_apart
    from deepthink_cli.report.job_results import read_jobs
    from deepthink_cli.report.page import Report

    problems, output = Problems(), chosen.output
    read = read_by(config=common.config)
    with problems.collected():
        named = chosen.output_format
        for each in FORMATS[named].without if named is not None else ():
            if getattr(chosen, each):
                raise InputError.of(each, None, f"is about tables, and --output-format {named} writes none; omit it")
        if named is not None and FORMATS[named].is_folder:
            if output is None:
                raise InputError.of("output_format", named, "writes a folder; name it, as in -o records")
            check_folder_apart(output, runs)
        elif output is not None:
            check_apart(output, read, runs=runs)
        form = _format(named, common.as_json, output)
    jobs = problems.tried(read_jobs, runs, chosen.where or ())
    problems.raise_any()
    for line in shard_warnings(runs):
        note(f"warning: {line}")
    source = ", ".join(map(str, runs))
    shown = Report(source, jobs, chosen.at, chosen.published, chosen.all_tasks, chosen.details, command_line())
    with Show(common):
        if output is None:
            notes = FORMATS[form](shown, sys.stdout)
            sys.stdout.flush()
        elif FORMATS[form].is_folder:
            notes = FORMATS[form](shown, output)
        else:
            with writing(output) as file:
                notes = FORMATS[form](shown, file)
            note(f"wrote {output}", common.quiet)
    for line in notes:
        note(line, common.quiet)


def _format(format: str | None, json: bool, output: Path | None) -> str:
    """The requested format, or the format of the output's suffix."""
    if json and format not in (None, "json"):
        raise InputError(f"--json and --output-format {format}: two formats; give one of them")
    if json or format is not None:
        return format or "json"
    by_suffix = {suffix: name for name, each in FORMATS.items() for suffix in each.suffixes}
    suffix = "" if output is None else output.suffix.lower()
    if suffix not in by_suffix:
        reason = f"unknown format {suffix!r}; end the name in one of {', '.join(_SUFFIXES)}, or name an --output-format"
        raise InputError.of("output", output, reason)
    return by_suffix[suffix]


def write_terminal(report: Report, file: TextIO) -> None:
    """Print the tables of a report."""
    if report.details:
        print_report(*_parts(report.page), file=file)
    else:
        rest = f"{flag('details')}: p, McNemar's test, the best T on the test rows, and what was evaluated"
        print_report(*_parts(report.brief), "", *_wrapped(rest), file=file)


def _parts(page: Page) -> list[Any]:
    parts: list[Any] = [f"{page.source}: {page.title}"]
    if len(parts[0]) > TEXT_WIDTH:
        parts = [f"{page.source}:", *_wrapped(page.title)]
    for heading, rows in page.sections:
        parts += ["", *([heading] if heading else []), table(*page.columns, rows=rows)]
    parts += ["", *(line for text in page.legend for line in _wrapped(text))]
    if page.footnotes:
        parts += ["", *(line for text in page.footnotes for line in _wrapped(text, "* "))]
    return parts


def _wrapped(text: str, mark: str = "") -> list[str]:
    """Lines of at most `TEXT_WIDTH`, never broken at a hyphen, which may be part of a name."""
    indent = " " * len(mark)
    return textwrap.wrap(
        text, TEXT_WIDTH, initial_indent=mark, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
