"""The table of a study as LaTeX, in the layout of the paper's Table 1."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepthink_cli.plugins.paper.forms.options import TableOptions
from deepthink_cli.plugins.paper.forms.table import Line, TableContent, best_of, content_of, mean_of, mean_over
from deepthink_cli.plugins.paper.latex import latex_text, named, table_environment, titles_of, without_paths
from deepthink_cli.report.footnotes import footnotes
from deepthink_cli.report.job_results import JobResults


def latex_table(form: TableOptions, jobs: Sequence[JobResults], name: str, title: str) -> str:
    """A table* for booktabs: a line for each method, blocks with titles, the best of ours in bold, caption and label.

    `name` is the study's, of which the label is made, and `title` begins the caption. The paper's figures are in
    parentheses. Raises InputError if no row of its columns is there.
    """
    content = content_of(form, jobs)
    count = len(content.columns) + 1
    titles = titles_of(jobs)
    headings = [named(heading, titles) for heading in content.headings]
    head = [r"\textbf{Method}", *(rf"\textbf{{{latex_text(heading)}}}" for heading in headings)]
    body = [" & ".join(head) + r" \\"]
    for block, lines in content.blocks:
        body.append(r"\midrule")
        if block.title:
            body += [rf"\multicolumn{{{count}}}{{c}}{{\itshape {latex_text(block.title)}}} \\", r"\midrule"]
        best = best_of(lines)
        body += [_line(line, best) for line in lines]
    paper = " In parentheses: the paper's figures." if content.has_paper else ""
    words = re.sub(r"^Table \d+: ", "", title)  # LaTeX numbers the table itself
    caption = f"{words[:1].upper()}{words[1:]}. {_about(content, jobs)}.{paper} Bold: the best of ours."
    notes = [named(note, titles) for note in footnotes(jobs)]
    return table_environment(name, f"l{'c' * (count - 1)}", body, notes, latex_text(caption), f"tab:{name}")


def _about(content: TableContent, jobs: Sequence[JobResults]) -> str:
    models = ", ".join(dict.fromkeys(line.model for _, lines in content.blocks for line in lines))
    return f"Accuracy in percent of {without_paths(models, jobs)}, {mean_over(jobs)}"


def _line(line: Line, best: dict[tuple[str, int], float]) -> str:
    cells = [latex_text(line.label)]
    for number, paper in enumerate(line.paper):
        mean = mean_of(line, number)
        text = "--" if mean is None else f"{mean:.1f}"
        if mean is not None and mean == best.get((line.model, number)):
            text = rf"\textbf{{{text}}}"
        cells.append(text if paper is None else rf"{text} {{\scriptsize({paper:.1f})}}")
    return " & ".join(cells) + r" \\"
