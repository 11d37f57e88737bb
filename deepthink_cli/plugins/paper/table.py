"""The table of a study as LaTeX: methods by tasks, as in the paper's Tables 1 to 3, with its figures beside ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deepthink_cli.errors import InputError
from deepthink_cli.plugins.paper.compared import distinct, short
from deepthink_cli.plugins.paper.latex import latex_text, named, table_environment, titles_of, without_paths
from deepthink_cli.plugins.paper.published import figures
from deepthink_cli.plugins.paper.registry import Block, TableOptions
from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.footnotes import footnotes
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.significance import Spread
from deepthink_cli.report.tables import TableRow, groups_of, summarize


@dataclass(frozen=True)
class Line:
    """One method: its label, and for each column our accuracy and the paper's in percent, None where there is none."""

    model: str
    label: str
    ours: tuple[Spread | None, ...]
    paper: tuple[float | None, ...]


def lines_of(form: TableOptions, block: Block, jobs: Sequence[JobResults], columns: Sequence[str]) -> list[Line]:
    """The lines of a block: for each model every baseline, then every arm at the block's T.

    They have the order of the block's methods, or without methods the order of the jobs.
    """
    rows = [row for row in summarize(jobs, block.iteration) if row.name in columns]
    families = list(dict.fromkeys(job.arm.family for job in jobs))
    arms = sorted(
        dict.fromkeys(row.arm for row in rows),
        key=lambda arm: (
            block.methods.index(arm.sampling) if arm.sampling in block.methods else 0,
            families.index(arm.family),
        ),
    )
    names, lines = varying(arms), dict[tuple[str, str], Line]()
    arms = [arm for arm in arms if not block.methods or arm.sampling in block.methods]
    for model in distinct([arm.model for arm in arms]):
        for is_thinking in (False, True):
            for arm in arms:
                if arm.model == model and not (is_thinking and form.thinking and arm.sampling not in form.thinking):
                    of_arm = {row.name: row for row in rows if row.arm == arm}
                    if not is_thinking and all(row.plain is None for row in of_arm.values()):
                        continue
                    label = _label(arm, names, _method(block, of_arm.values()) if is_thinking else None)
                    lines.setdefault((model, label), _line(label, arm, of_arm, columns, is_thinking))
    return list(lines.values())


def _columns(form: TableOptions, rows: Sequence[TableRow]) -> list[str]:
    names = distinct([row.name for row in rows if not row.is_detail or row.name in form.columns])
    columns = [name for name in form.columns or names if name in names]
    if not columns:
        raise InputError("figure: there are no rows of its columns at T = 1 and at T yet; continue the study")
    return columns


def _line(label: str, arm: Arm, rows: Mapping[str, TableRow], columns: Sequence[str], is_thinking: bool) -> Line:
    ours, paper = list[Spread | None](), list[float | None]()
    for name in columns:
        row = rows.get(name)
        ours.append(None if row is None else row.thinking if is_thinking else row.plain)
        cell = figures(arm, name, bool(row and row.on_dev))[is_thinking]
        paper.append(None if cell is None else cell.accuracy)
    return Line(arm.model, label, tuple(ours), tuple(paper))


def _method(block: Block, rows: Iterable[TableRow]) -> str:
    if block.iteration:
        return f"Deep-Thinking, T = {block.iteration}"
    return "Deep-Thinking, T by dev" if any(row.on_dev for row in rows) else "Deep-Thinking"


def _label(arm: Arm, names: Sequence[str], method: str | None) -> str:
    """The model, what else distinguishes the arm, and the method; without a method its baseline."""
    kept = [name for name in names if name != "model"]
    model = short(arm.model) if "model" in names else ""
    words = arm.baseline_label(kept, short=True) if method is None else arm.label(kept, short=True)
    return ", ".join(filter(None, [model, words.replace(" sampling", ""), method or "ICL"]))


def best_of(lines: Sequence[Line]) -> dict[tuple[str, int], float]:
    """The best accuracy of ours in a block, by model and column, as it is printed; only where lines can be compared."""
    means = dict[tuple[str, int], list[float]]()
    for line in lines:
        for number in range(len(line.ours)):
            if (mean := mean_of(line, number)) is not None:
                means.setdefault((line.model, number), []).append(mean)
    return {place: max(values) for place, values in means.items() if len(values) > 1}


def mean_of(line: Line, column: int) -> float | None:
    """Our accuracy in percent as it is printed, with one decimal, or None."""
    spread = line.ours[column]
    return None if spread is None else round(100 * spread.mean, 1)


def latex_table(form: TableOptions, jobs: Sequence[JobResults], name: str, title: str) -> str:
    """A table* for booktabs: a line for each method, blocks with titles, the best of ours in bold, caption and label.

    `name` is the study's, of which the label is made, and `title` begins the caption. The paper's figures are in
    parentheses. Raises InputError if no row of its columns is there.
    """
    columns, last = _columns(form, summarize(jobs)), max((t for job in jobs for t in job.test), default=1)
    # A T beyond the last, in a study's small scale, becomes the last T.
    within = [
        each.model_copy(update={"iteration": each.iteration and min(each.iteration, last)}) for each in form.blocks
    ]
    blocks = [(block, lines_of(form, block, jobs, columns)) for block in within]
    every = [line for _, lines in blocks for line in lines]
    titles, groups = titles_of(jobs), groups_of(jobs)
    # A group whose tasks have columns as well is their average.
    names = ["average" if {*groups.get(name, [])} & {*columns} else name for name in columns]
    head = [r"\textbf{Method}", *(rf"\textbf{{{latex_text(named(name, titles))}}}" for name in names)]
    body = [" & ".join(head) + r" \\"]
    for block, lines in ((block, lines) for block, lines in blocks if lines):
        body.append(r"\midrule")
        if block.title:
            body += [rf"\multicolumn{{{len(columns) + 1}}}{{c}}{{\itshape {latex_text(block.title)}}} \\", r"\midrule"]
        best = best_of(lines)
        body += [_latex_line(line, best) for line in lines]
    has_paper = any(value is not None for line in every for value in line.paper)
    paper = " In parentheses: the paper's figures." if has_paper else ""
    words = re.sub(r"^Table \d+: ", "", title)  # LaTeX numbers the table itself
    models, seeds = ", ".join(dict.fromkeys(line.model for line in every)), len({str(job.seed) for job in jobs})
    mean = "one seed" if seeds == 1 else f"mean of {seeds} seeds"
    about = f"Accuracy in percent of {without_paths(models, jobs)}, {mean}"
    caption = f"{words[:1].upper()}{words[1:]}. {about}.{paper} Bold: the best of ours."
    notes = [named(note, titles) for note in footnotes(jobs)]
    return table_environment(name, f"l{'c' * len(columns)}", body, notes, latex_text(caption), f"tab:{name}")


def _latex_line(line: Line, best: dict[tuple[str, int], float]) -> str:
    cells = [latex_text(line.label)]
    for number, paper in enumerate(line.paper):
        mean = mean_of(line, number)
        text = "--" if mean is None else f"{mean:.1f}"
        if mean is not None and mean == best.get((line.model, number)):
            text = rf"\textbf{{{text}}}"
        cells.append(text if paper is None else rf"{text} {{\scriptsize({paper:.1f})}}")
    return " & ".join(cells) + r" \\"
