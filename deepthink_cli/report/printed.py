"""A page as a paper prints it: a short caption without paths, tasks by their titles, the rest in notes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from deepthink_cli.report.formats import Page

if TYPE_CHECKING:
    from deepthink_cli.report.job_results import JobResults

CAPTION_WORDS = 40
ABOUT = "Deep-Thinking and in-context learning (ICL), accuracy in percent"


def printed(page: Page, jobs: Sequence[JobResults]) -> Page:
    """The page of a report for LaTeX; its ranking keeps its own title."""
    titles = titles_of(jobs)
    about = without_paths(page.title, jobs)
    caption = f"{ABOUT}: {about}"
    long = len(caption.split()) > CAPTION_WORDS
    notes = [*([about] if long else []), *page.legend, *page.footnotes]
    ranked = page.appendix
    return Page(
        source=page.source,
        title=ABOUT if long else caption,
        columns=page.columns,
        sections=[
            (named(heading, titles), [[named(cell, titles) for cell in row] for row in rows])
            for heading, rows in page.sections
        ],
        legend=[],
        footnotes=[named(note, titles) for note in notes],
        appendix=ranked and Page(ranked.source, ranked.title, ranked.columns, ranked.sections, [], ranked.legend),
    )


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
