"""Format a page of tables as Markdown and CSV, independently of the content.

Libraries do not escape all of it: tabulate 0.10 and pytablewriter 1.2 leave `*`, `_` and `<` in Markdown as they are;
great_tables 1.1 writes no Markdown.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepthink_cli.io.text import markdown_text, printable


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
