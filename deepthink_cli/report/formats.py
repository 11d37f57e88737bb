"""Format a page of tables as Markdown, LaTeX and CSV, independently of the content.

Libraries do not escape all of it: tabulate 0.10 and pytablewriter 1.2 leave `*`, `_` and `<` in Markdown as they are;
tabulate and pandas leave a LaTeX cell `[q]`, which LaTeX reads as an argument; great_tables 1.1 writes no Markdown.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepthink_cli.io.text import markdown_text, printable

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",
    "*": "{*}",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Page:
    """Tables with the same columns, each with a heading (empty for a single table), a legend and footnotes.

    `source` names the runs; the LaTeX table has it only in a comment. `appendix` is a further page, with its own
    columns.
    """

    source: str
    title: str
    columns: Sequence[str]
    sections: Sequence[tuple[str, Sequence[Sequence[str]]]]
    legend: Sequence[str]
    footnotes: Sequence[str]
    appendix: Page | None = field(default=None, kw_only=True)


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
    rest = "" if page.appendix is None else "\n" + markdown(page.appendix)
    return "\n\n".join(blocks) + "\n" + rest


def latex(page: Page) -> str:
    """A table* for booktabs: sections between rules, the title as caption, legend and footnotes as notes below."""
    count = len(page.columns)
    body = [_latex_row(page.columns)]
    for heading, rows in page.sections:
        body.append(r"\midrule")
        if heading:
            body += [rf"\multicolumn{{{count}}}{{l}}{{\textit{{{latex_text(heading)}}}}} \\"]
        body += map(_latex_row, rows)
    rest = "" if page.appendix is None else "\n" + latex(page.appendix)
    caption = f"{latex_text(page.title)}."
    return (
        table_environment(page.source, f"l{'r' * (count - 1)}", body, [*page.legend, *page.footnotes], caption) + rest
    )


def table_environment(
    source: str, columns: str, body: Sequence[str], footnotes: Sequence[str], caption: str, label: str = ""
) -> str:
    """A table* for booktabs; `body`, `columns` and `caption` are LaTeX already, the footnotes plain text."""
    lines = [
        rf"% From {printable(source)}; needs \usepackage{{booktabs}}.",
        r"\begin{table*}",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *(_notes(footnotes) if footnotes else []),
        rf"\caption{{{caption}}}",
        *([rf"\label{{{label}}}"] if label else []),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _notes(lines: Sequence[str]) -> list[str]:
    """Notes below the rows of a table, as one paragraph of sentences in a smaller font."""
    sentences = [latex_text(line if line.endswith((".", "?", "!")) else f"{line}.") for line in lines]
    return [
        r"\par\smallskip\begin{minipage}{\linewidth}\scriptsize\raggedright",
        r"\textit{Notes.}",
        *sentences,
        r"\end{minipage}",
    ]


def comma_separated(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a header; an absent value is an empty field."""
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    out = csv.DictWriter(text, fieldnames=list(names), lineterminator="\n")
    out.writeheader()
    out.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def _plain(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped, hyphens kept apart, and a minus before a number in mathematics."""
    escaped = "".join(_LATEX.get(character, character) for character in printable(text)).replace("--", "-{}-")
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
