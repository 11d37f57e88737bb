"""The study of the folders that are reported or drawn: its place, its name, and its missing rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.cli.console import note
from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from deepthink_cli.experiments.study import OpenedStudy


def study_of(runs: Sequence[Path], quiet: bool) -> OpenedStudy | None:
    """The study that was run into these folders; None for runs.

    Folders whose study cannot be read, because its file was moved or changed, count as runs, with a note.
    """
    from deepthink_cli.experiments.study import open_study, origin_of

    origin = origin_of(runs)
    if origin is None:
        return None
    try:
        return open_study(origin.study, origin.scale)
    except InputError as error:
        note(f"{runs[0]}: taken as a run, because its study cannot be read: {error.messages[0]}", quiet)
        return None


def titled(runs: Sequence[Path], opened: OpenedStudy | None) -> str:
    """The folders, after the title of their study, if any."""
    folders = ", ".join(map(str, runs))
    return folders if opened is None else f"{opened.study.title or opened.study.name} ({folders})"


def tell_of_missing(opened: OpenedStudy | None, runs: Sequence[Path], quiet: bool) -> None:
    """Note that rows of a study are missing, counted by the definitions of its tasks."""
    from deepthink_cli.experiments.crossing import cross_study
    from deepthink_cli.experiments.folder import found_in
    from deepthink_cli.experiments.plan import rows_of
    from deepthink_cli.experiments.shards import with_shards

    if opened is None:
        return
    try:
        expected = sum(rows_of(run) for run in cross_study(opened).runs)
    except InputError as error:
        note(f"{opened.study.name}: whether rows are missing is not known: {error.messages[0]}", quiet)
        return
    written = sum(len(found_in(run)) for run in with_shards(runs))
    if written < expected:
        there = f"{written:,} of {expected:,} rows are there, of all that the study has"
        note(f"{opened.study.name}: {there}; the same deepthink study run continues", quiet)
