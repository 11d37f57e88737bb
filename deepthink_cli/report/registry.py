"""The formats of a report by name, as `report --output-format` takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from deepthink_cli.io.text import json_line
from deepthink_cli.registry import Registry, instance_of, loaded
from deepthink_cli.report.formats import comma_separated, markdown

if TYPE_CHECKING:
    from deepthink_cli.report.job_results import JobResults
    from deepthink_cli.report.page import Report


@dataclass(frozen=True, eq=False)
class Reported:
    """A report of jobs, for formats; `line` is the command line of the report.

    `details` asks a format that has a brief form for the whole one.

    The other fields are as in `report_of`.
    """

    source: str
    jobs: Sequence[JobResults]
    iteration: int | None = None
    published: bool = False
    all_tasks: bool = False
    line: str = ""
    details: bool = False

    @cached_property
    def page(self) -> Report:
        """The tables, made on first use; raises as `report_of` does."""
        from deepthink_cli.report.page import report_of

        return report_of(self.source, self.jobs, self.iteration, self.published, self.all_tasks)


@dataclass(frozen=True)
class Format:
    """A form in which a report is written.

    `write` is a function, or the place of one (`module:function`). It gets the report and a text file, or with
    `is_folder` the path of a folder, and returns lines to note. The format is chosen for files with its `suffixes`.
    `without` names options of tables and pages that the format does not take.
    """

    write: Callable[[Reported, Any], Sequence[str] | None] | str
    summary: str
    source: str = ""
    suffixes: tuple[str, ...] = ()
    is_folder: bool = False
    without: tuple[str, ...] = ()

    def __call__(self, reported: Reported, output: Any) -> Sequence[str]:
        """Write the report; raises as `write` does."""
        return loaded(self.write)(reported, output) or ()


def _markdown(reported: Reported, file: TextIO) -> None:
    file.write(markdown(reported.page))


def _csv(reported: Reported, file: TextIO) -> Sequence[str]:
    file.write(comma_separated(reported.page.records()))
    return reported.page.footnotes


def _json(reported: Reported, file: TextIO) -> None:
    file.write(json_line(reported.page.as_json()))


FORMATS: Registry[Format] = Registry(
    "formats",
    {
        "terminal": Format(
            "deepthink_cli.cli.report:write_terminal",
            "formatted tables",
            "https://github.com/Textualize/rich",
            suffixes=("", ".txt"),
        ),
        "markdown": Format(_markdown, "tables in Markdown", "https://github.github.com/gfm", suffixes=(".md",)),
        "csv": Format(_csv, "a line for each row, numbers in [0, 1]", "RFC 4180", suffixes=(".csv",)),
        "json": Format(_json, "rows, legend and footnotes, numbers in [0, 1]", "RFC 8259", suffixes=(".json",)),
    },
    instance_of(Format),
)
