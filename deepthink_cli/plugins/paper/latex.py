"""A report as a paper prints it, in LaTeX: a short caption without paths, tasks by their titles, the rest in notes.

tabulate and pandas leave a cell `[q]`, which LaTeX reads as an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, TextIO

from deepthink_cli.io.text import printable
from deepthink_cli.report.page import Page

if TYPE_CHECKING:
    from deepthink_cli.report.job_results import JobResults
    from deepthink_cli.report.page import Report

CAPTION_WORDS = 40
ABOUT = "Deep-Thinking and in-context learning (ICL), accuracy in percent"
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


def write_report(report: Report, file: TextIO) -> None:
    """Write the tables of a report."""
    page, titles = report.page, titles_of(report.jobs)
    about = without_paths(page.title, report.jobs)
    caption = f"{ABOUT}: {about}"
    long = len(caption.split()) > CAPTION_WORDS
    notes = [*([about] if long else []), *page.legend, *page.footnotes]
    shown = replace(
        page,
        title=ABOUT if long else caption,
        sections=[
            (named(heading, titles), [[named(cell, titles) for cell in row] for row in rows])
            for heading, rows in page.sections
        ],
        legend=[],
        footnotes=[named(note, titles) for note in notes],
    )
    file.write(latex(shown))


def titles_of(jobs: Sequence[JobResults]) -> dict[str, str]:
    """The titles of the built-in tasks and groups of the jobs, such as SST-2 for sst2, where only one has the title."""
    from deepthink_cli.tasks.catalogue import built_in, groups

    short = {name: task.title.partition(":")[0] for name, task in built_in().items()}
    titles = list(short.values())
    of_tasks = {name: title for name, title in short.items() if titles.count(title) == 1}
    shared = {group: {short[name] for name in members} for group, members in groups().items() if "/" not in group}
    of_groups = {group: found.pop() for group, found in shared.items() if len(found) == 1}
    there = {name for job in jobs for name in (job.task, *job.groups)}
    return {name: title for name, title in (of_groups | of_tasks).items() if name in there}


def named(text: str, titles: Mapping[str, str]) -> str:
    """The text with titles in place of names."""
    if not titles:
        return text
    names = "|".join(map(re.escape, sorted(titles, key=len, reverse=True)))
    return re.sub(rf"(?<![\w/-])({names})(?![\w/-])", lambda found: titles[found[1]], text)


def without_paths(text: str, jobs: Sequence[JobResults]) -> str:
    """The text with the last parts of the models' names."""
    for model in {job.arm.model for job in jobs}:
        text = text.replace(model, PurePath(model).name)
    return text


def latex(page: Page) -> str:
    """A table* for booktabs: sections between rules, the title as caption, legend and footnotes as notes below."""
    count = len(page.columns)
    body = [_latex_row(page.columns)]
    for heading, rows in page.sections:
        body.append(r"\midrule")
        if heading:
            body += [rf"\multicolumn{{{count}}}{{l}}{{\textit{{{latex_text(heading)}}}}} \\"]
        body += map(_latex_row, rows)
    caption = f"{latex_text(page.title)}."
    return table_environment(page.source, f"l{'r' * (count - 1)}", body, [*page.legend, *page.footnotes], caption)


def table_environment(
    source: str, columns: str, body: Sequence[str], footnotes: Sequence[str], caption: str, label: str = ""
) -> str:
    """A table* for booktabs; `body`, `columns` and `caption` are LaTeX already, the footnotes plain text.

    Footnotes are one paragraph of sentences in a smaller font.
    """
    sentences = [latex_text(line if line.endswith((".", "?", "!")) else f"{line}.") for line in footnotes]
    notes = [
        r"\par\smallskip\begin{minipage}{\linewidth}\scriptsize\raggedright",
        r"\textit{Notes.}",
        *sentences,
        r"\end{minipage}",
    ]
    lines = [
        rf"% From {printable(source)}; needs \usepackage{{booktabs}}.",
        r"\begin{table*}",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *(notes if sentences else []),
        rf"\caption{{{caption}}}",
        *([rf"\label{{{label}}}"] if label else []),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped, hyphens kept apart, and a minus before a number in mathematics."""
    escaped = "".join(_LATEX.get(character, character) for character in printable(text)).replace("--", "-{}-")
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
