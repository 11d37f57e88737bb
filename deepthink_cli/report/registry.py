"""What is registered for reports: formats, as `--output-format` takes them, and forms of figures.

Libraries do not escape all of Markdown: tabulate 0.10 and pytablewriter 1.2 leave `*`, `_` and `<` as they are;
great_tables 1.1 writes no Markdown.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, get_args

from pydantic import BaseModel, ConfigDict

from deepthink_cli.io.text import json_line, markdown_text, printable
from deepthink_cli.registry import Registry, instance_of, loaded

if TYPE_CHECKING:
    from deepthink_cli.report.page import Page, Report


@dataclass(frozen=True)
class Format:
    """A form in which a report is written.

    `write` is a function, or the place of one (`module:function`). It gets the report and a text file, or with
    `is_folder` the path of a folder, and returns lines to note. The format is chosen for files with its `suffixes`.
    `without` names options of tables and pages that the format does not take.
    """

    write: Callable[[Report, Any], Sequence[str] | None] | str
    summary: str
    source: str = ""
    suffixes: tuple[str, ...] = ()
    is_folder: bool = False
    without: tuple[str, ...] = ()

    def __call__(self, report: Report, output: Any) -> Sequence[str]:
        """Write the report; raises as `write` does."""
        return loaded(self.write)(report, output) or ()


def markdown(page: Page) -> str:
    """A table for each section, with aligned columns: the first to the left, the others to the right."""
    blocks = [f"**{markdown_text(page.title)}** ({markdown_text(page.source)})"]
    cells = [[markdown_text(cell) for cell in row] for _, rows in page.sections for row in rows]
    names = [markdown_text(name) for name in page.columns]
    widths = [max(3, *map(len, column)) for column in zip(names, *cells, strict=True)]
    rule = [("-" * (width - 1) + ":" if place else "-" * width) for place, width in enumerate(widths)]
    for heading, rows in page.sections:
        if heading:
            blocks.append(f"*{markdown_text(heading)}*")
        escaped = [[markdown_text(cell) for cell in row] for row in rows]
        blocks.append("\n".join(_aligned(row, widths) for row in (names, rule, *escaped)))
    blocks += [markdown_text(line) for line in page.legend]
    if page.footnotes:
        blocks.append("\n".join(f"- {markdown_text(line)}" for line in page.footnotes))
    return "\n\n".join(blocks) + "\n"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def _markdown(report: Report, file: TextIO) -> None:
    file.write(markdown(report.page))


def _csv(report: Report, file: TextIO) -> Sequence[str]:
    """A header and the rows; an absent value is an empty field."""
    rows = report.records()
    out = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    out.writeheader()
    for row in rows:
        out.writerow({name: printable(value) if isinstance(value, str) else value for name, value in row.items()})
    return report.page.footnotes


def _json(report: Report, file: TextIO) -> None:
    file.write(json_line(report.as_json()))


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


class FigureOptions(BaseModel):
    """What a figure shows, as a study file says; `kind` is the name of its form."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str


@dataclass(frozen=True)
class FigureForm:
    """A form of a study's figure, which a study file names as `kind`.

    `options` are the fields of the figure in the file; their `kind` is a `Literal` of the form's name. `draw` makes a
    figure of matplotlib of them and the jobs (`report/job_results.py`), in the style that is set, and raises InputError
    if there is nothing to draw yet. A form that is a table has `latex` instead, which makes the text of a .tex file of
    them, the jobs, the name and the title of the study. Both are functions, or where they are found
    (`module:function`).
    """

    options: type[FigureOptions]
    draw: Callable[[Any, Any], Any] | str | None
    summary: str
    source: str
    latex: Callable[[Any, Any, str, str], str] | str | None = None


def _checked(name: str, value: Any) -> FigureForm:
    form = instance_of(FigureForm)(name, value)
    if get_args(form.options.model_fields["kind"].annotation) != (name,):
        raise ValueError(f"its options have another kind than {name!r}")
    return form


FORMS: Registry[FigureForm] = Registry("forms", {}, _checked)
