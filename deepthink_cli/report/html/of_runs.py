"""The page of a report: its tables, curves over T, settings, and the samples of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from deepthink_cli.report.curves import panels
from deepthink_cli.report.formats import Page
from deepthink_cli.report.html.commands import run_commands
from deepthink_cli.report.html.page import Table, WebPage
from deepthink_cli.report.html.run_charts import curves_of
from deepthink_cli.report.html.run_samples import samples_of
from deepthink_cli.report.html.versions import versions
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.page import Report

MOST_VALUES = 12  # values of a setting that are listed


def page_of_runs(report: Report, jobs: Sequence[JobResults], command: str = "", tasks: bool = False) -> WebPage:
    """The page of a report of these jobs; `command` is the line that writes it, `tasks` as in `report_of`.

    Raises InputError for samples that cannot be read.
    """
    samples, missing = samples_of(jobs)
    shown = panels(jobs, tasks)
    commands = [("This page", command)] if command else []
    commands += [("The results, with all combinations of the values", line) for line in run_commands(jobs)]
    return WebPage(
        title="Deep-Thinking against plain in-context learning",
        summary=[report.source, report.title],
        tables=list(_tables(report)),
        legend=[*report.legend, *(report.appendix.legend if report.appendix else [])],
        footnotes=report.footnotes,
        curves=curves_of(shown),
        settings=_settings(jobs),
        versions=versions(),
        commands=commands,
        samples=samples if len(samples) else None,
        about_samples=_about_samples(len(samples), missing, any(samples.texts)),
    )


def _tables(page: Page) -> Iterable[Table]:
    for heading, rows in page.sections:
        yield Table(heading or page.title, page.columns, rows)
    if page.appendix is not None:
        yield from _tables(page.appendix)


def _settings(jobs: Sequence[JobResults]) -> dict[str, str]:
    """Every field of the settings with its values, in the order of the rows; those that are never set are omitted."""
    values: dict[str, dict[str, None]] = {}
    for job in jobs:
        for result in (*job.test.values(), *job.dev.values()):
            for name, value in asdict(result.setting).items():
                values.setdefault(name, {})[_text(value)] = None
    return {name: _listed(name, list(texts)) for name, texts in values.items() if list(texts) != [""]}


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:g}"
        case dict():
            return ", ".join(f"{name}: {part}" for name, part in value.items())
    return str(value)


def _listed(name: str, texts: Sequence[str]) -> str:
    if name.endswith("_sha256") and len(texts) > 1:
        return f"{len(texts)} different"
    shown = [text or "none" for text in texts[:MOST_VALUES]]
    rest = len(texts) - len(shown)
    return ", ".join([*shown, *([f"and {rest} more"] if rest else [])])


def _about_samples(rows: int, missing: int, has_texts: bool) -> list[str]:
    if not rows:
        return ["These runs have no samples; deepthink run --samples keeps every input's scores."]
    notes = []
    if missing:
        notes.append(f"{missing:,} results have no samples, and their inputs are not listed.")
    if not has_texts:
        notes.append("These runs kept no texts of their inputs, which are named by their file and line.")
    return notes
