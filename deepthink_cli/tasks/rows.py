"""Read demonstrations and rows of tasks, and report events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.tasks.catalogue import built_in, find_task
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import TaskColumns
from deepthink_cli.tasks.sources import Source, needs_hub
from deepthink_cli.tasks.splits import Drawn, draw_demonstrations, evaluation_set


def announce(source: Source, tasks: Sequence[Task], tell: Tell) -> None:
    """Report that rows may be downloaded, before that happens."""
    remote = sum(needs_hub(task, source) for task in tasks)
    if remote:
        rows = "its rows" if remote == 1 else f"the rows of {remote} tasks"
        tell(Note(f"reading {rows} from the hub, or from its cache"))


def draw(task: Task, protocol: str, source: Source, options: TaskOptions, tell: Tell) -> Drawn:
    """Draw the task's demonstrations; reports the rows that were omitted."""
    announce(source, [task], tell)
    evaluated = evaluation_set(task, protocol, source)
    drawn = draw_demonstrations(task, evaluated, options.shots, options.seed)
    for reason, count in drawn.left_out.items():
        tell(Note(f"{task.name}: {count} training rows cannot be demonstrations: {reason}"))
    return drawn


def in_columns(
    memory: OpenedMemory, source: str | Path | RowSource, name: str | None = None, free: bool = False
) -> RowSource:
    """The rows of a file, with the template's fields, or in the columns of the memory's task.

    `name` is the name or the file of the task, if it is not built in. With `free`, rows need no candidates. Raises
    InputError if the task is unknown or has other labels or fields than the memory.
    """
    source = RowSource.of(source)
    if source.convert is not None:
        return source
    named = None if name is None else find_task(name)
    if named is not None:
        check_memory(memory, named, silent)
    demonstrations = memory.provenance.demonstrations
    find = cache(lambda: named or _task_of(memory))
    words, made_for = dict(source.words), memory.provenance.task
    columns = TaskColumns(demonstrations.template, demonstrations.labels, find, made_for, free, words)
    return replace(source, convert=columns)


def _task_of(memory: OpenedMemory) -> Task | None:
    """The built-in task of a memory, if it has the memory's labels and fields."""
    task = built_in().get(memory.provenance.task or "")
    try:
        if task is not None:
            check_memory(memory, task, silent)
        return task
    except InputError:
        return None


def check_memory(memory: OpenedMemory, task: Task, tell: Tell) -> None:
    """Raise InputError unless a memory has the task's label words and fields.

    Warns if the templates differ in their text: the memory's template is used.
    """
    demonstrations, labels = memory.provenance.demonstrations, task.labels or []
    template, prompt = demonstrations.template, task.prompt
    advice = f"run deepthink think again with {option('task')} {task.name}"
    if set(demonstrations.labels) != set(labels):
        of_memory = ", ".join(demonstrations.labels) or "candidates of every input"
        of_task = ", ".join(labels) or "every input's own candidates"
        raise InputError(f"{memory.name}: made for the labels {of_memory}; task {task.name} has {of_task}: {advice}")
    fields, task_fields = template.text_fields, prompt.text_fields
    if set(fields) != set(task_fields) and not len(fields) == len(task_fields) == 1:
        raise InputError(
            f"{memory.name}: its template asks for {', '.join(fields)}; task {task.name} has "
            f"{', '.join(task_fields)}: {advice}"
        )
    if template.words != prompt.words or (len(fields) > 1 and fields != task_fields):
        text = (
            f"{memory.name}: its template {template.pattern!r} is not that of task {task.name}, {prompt.pattern!r}; "
            "the rows are written with the memory's"
        )
        tell(Warn(text))
