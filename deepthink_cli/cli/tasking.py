"""Tasks as they are typed: options checked, rows found, demonstrations drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.cli.console import note
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.data.examples import DemonstrationSet
    from deepthink_cli.options import TaskOptions
    from deepthink_cli.tasks.format import Task
    from deepthink_cli.tasks.sources import Source
    from deepthink_cli.tasks.splits import Drawn, EvaluationSet


def source_of(data_dir: Path | None, offline: bool) -> Source:
    """Where task rows come from; raises InputError for a data directory that is not there."""
    from deepthink_cli.tasks.sources import Source

    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data-dir {data_dir}: no such directory")
    return Source(data_dir, offline)


def announce(source: Source, tasks: int, quiet: bool) -> None:
    """Say that rows may be downloaded, before they are."""
    from deepthink_cli.tasks.sources import needs_hub

    if needs_hub(source):
        note(
            f"reading {'its rows' if tasks == 1 else f'the rows of {tasks} tasks'} from the hub, or from its cache",
            quiet,
        )


def only_with_task(task: str | None, **given: object) -> None:
    """Raise InputError for options that mean nothing without --task."""
    problems = Problems()
    for name, value in given.items():
        if task is None and value is not None:
            with problems.collected():
                raise InputError(f"--{name.replace('_', '-')} {value}: only with --task NAME")
    problems.raise_any()


def draw(task: Task, protocol: str, source: Source, options: TaskOptions, quiet: bool) -> Drawn:
    """The task's demonstrations, with a note on what was left out."""
    from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

    announce(source, 1, quiet)
    evaluated = evaluation_set(task, protocol, source)
    drawn = draw_demonstrations(task, evaluated, options.shots, options.seed, options.order_seed, options.sampling)
    for reason, count in drawn.left_out.items():
        note(f"{task.name}: {count} training rows cannot be demonstrations: {reason}", quiet)
    return drawn


def given_demonstrations(task: Task, demos: str) -> DemonstrationSet:
    """Demonstrations from a file, in the task's prompt: rows with the template's fields."""
    from deepthink_cli.data.examples import read_demonstrations

    return read_demonstrations(demos, task.template, None, task.labels, task.separator)


def check_memory(header: Header, task: Task) -> None:
    """Raise InputError where a memory was made for other label words or other fields than the task's.

    A template with other words is told: the rows are written with the memory's.
    """
    metadata = header.metadata
    labels = task.labels or []
    if set(metadata.labels) != set(labels):
        made = ", ".join(metadata.labels) or "candidates of every input"
        asks = ", ".join(labels) or "every input's own candidates"
        raise InputError(
            f"{header.path}: made for the labels {made}; task {task.name} has {asks}: think again with --task {task.name}"
        )
    one, two = metadata.template.text_fields, task.prompt.text_fields
    if set(one) != set(two) and not len(one) == len(two) == 1:
        raise InputError(
            f"{header.path}: its template asks for {', '.join(one)}; task {task.name} has {', '.join(two)}: think again with --task {task.name}"
        )
    if metadata.template.words != task.prompt.words or (len(one) > 1 and one != two):
        note(
            f"warning: {header.path}: its template {metadata.template.pattern!r} is not that of task {task.name}, "
            f"{task.prompt.pattern!r}; the rows are written with the memory's"
        )


def warn_of_leaks(header: Header, evaluated: EvaluationSet, quiet: bool) -> None:
    """Say how many of the memory's demonstrations stand in the rows that are evaluated."""
    from deepthink_cli.data.examples import Query
    from deepthink_cli.tasks.splits import key

    given = header.metadata.provenance().demonstrations
    labels = tuple(given.labels)
    leaked = sum(bool(labels) and key(Query(one.text, labels)) in evaluated.keys for one in given.examples)
    if leaked:
        note(
            f"warning: {leaked} of the memory's demonstrations stand in {evaluated.task.name}'s {evaluated.split} split; "
            "its accuracy is too good",
            quiet,
        )
