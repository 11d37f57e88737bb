"""Rows beside a memory or a task: demonstrations that are drawn, rows that are evaluated, and a pool without these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.opening import OpenedMemory, opened
from deepthink_cli.data.examples import Example, Query, Skipped, queries_or_skipped, read_queries
from deepthink_cli.data.rows import check_rereadable
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.io.hub import forbidden_by
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.inputs import CheckedRows, check_rows
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tasks.catalogue import built_in, find_task
from deepthink_cli.tasks.format import Free, Task
from deepthink_cli.tasks.items import TaskColumns
from deepthink_cli.tasks.judges import check_may_run, tell_of_programs
from deepthink_cli.tasks.sources import Source, files_of
from deepthink_cli.tasks.splits import Drawn, EvaluationSet, draw_demonstrations, evaluation_set, sampled, training_rows

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


def announce(source: Source, tasks: Sequence[Task], tell: Tell) -> None:
    """Report that rows may be downloaded, before that happens."""
    remote = 0 if source.data_dir or forbidden_by(source.offline) else sum(not files_of(task) for task in tasks)
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


@dataclass(frozen=True)
class EvaluatedRows:
    """The rows of an evaluation: a file, or a task's split under a protocol; they can be read several times.

    `count` is the number of rows. `demonstrations` are the demonstrations of the memory for which the rows were read.
    `skipped` counts, by reason, the rows that are not queries of the task. `source` is the file and `checked` the check
    of its rows; both are None for a task. `free` is set if answers are generated.
    """

    queries: Iterable[Query | Skipped]
    count: int
    split: str
    demonstrations: TokenizedDemonstrations
    task: str | None = None
    protocol: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    checked: CheckedRows | None = None
    source: RowSource | None = None
    free: Free | None = None


@dataclass(frozen=True)
class _Reread:
    """Queries of a file; every iterator reads the file again."""

    read: Callable[[], Iterator[Query | Skipped]]

    def __iter__(self) -> Iterator[Query | Skipped]:
        return self.read()


def rows_of_file(
    memory: str | Path | OpenedMemory | Memory,
    path: str | Path | RowSource,
    limit: int | None = None,
    skip: bool = False,
    labelled: bool = True,
) -> EvaluatedRows:
    """The labelled rows of a file, or a seeded sample of `limit` rows; without `labelled`, labels are not read.

    Raises InputError with all mistakes; with `skip`, only if no row can be used.
    """
    memory = opened(memory)
    source = in_columns(memory, path)
    check_rereadable(source)
    demonstrations = memory.provenance.demonstrations
    checked = check_rows(demonstrations, source, labelled, skip)
    assert checked is not None
    places = frozenset(sampled(range(checked.count), limit))

    def chosen() -> Iterator[Query | Skipped]:
        queries = queries_or_skipped(source, demonstrations.template, demonstrations.labels, labelled)
        return (query for place, query in enumerate(checked.same(queries, source.name)) if place in places)

    return EvaluatedRows(_Reread(chosen), len(places), source.path, demonstrations, checked=checked, source=source)


def rows_of_task(
    memory: str | Path | OpenedMemory | Memory,
    name: str,
    protocol: str = "official",
    source: Source | None = None,
    limit: int | None = None,
    tell: Tell = silent,
    run_code: bool = False,
) -> EvaluatedRows:
    """The rows that a task's protocol evaluates.

    Raises InputError for a memory with other labels or fields, and for a task whose answers are programs, unless they
    may be run (`run_code`) and can be confined.
    """
    memory, source, task = opened(memory), source or Source(), find_task(name)
    check_may_run(task, run_code)
    check_memory(memory, task, tell)
    tell_of_programs([task], tell)
    announce(source, [task], tell)
    rows = evaluation_set(task, protocol, source, limit)
    demonstrations = memory.provenance.demonstrations
    return EvaluatedRows(
        rows, len(rows), rows.split, demonstrations, task.name, rows.protocol, rows.skipped, free=task.free
    )


def pool_of_task(task: Task, evaluated: EvaluationSet, source: str | RowSource | None = None) -> PoolRows:
    """A task's training rows, or the labelled rows of a file in the task's prompt.

    Raises InputError, naming file and line, for a file with rows of the evaluated split.
    """
    labels = tuple(task.labels or ())
    check = partial(check_held_out, evaluated=evaluated, way=f"or choose without {option('task')}")
    if source is None:
        rows, left_out = training_rows(task, task.demonstrations, evaluated)
        return PoolRows.of(task.name, rows, task.prompt, labels, left_out=left_out, check_queries=check)
    columns = TaskColumns(task.prompt, labels, lambda: task)
    source = replace(RowSource.of(source), convert=columns)
    queries = list(read_queries(source, task.prompt, labels, labelled=True))
    check((query.where, query) for query in queries)
    return PoolRows.of(source.name, queries, task.prompt, labels, check_queries=check)


def check_held_out(rows: Iterable[tuple[str, Query | Example]], evaluated: EvaluationSet, way: str) -> None:
    """Raise InputError, with the place of the first, if rows are in the split that a task evaluates.

    Rows come as pairs of place and row. `way` is the remedy beside the removal of these rows.
    """
    places = [place for place, row in rows if row in evaluated]
    if places:
        count = len(places) - 1
        more = f", and so {'is 1 other row' if count == 1 else f'are {count} other rows'}" if count else ""
        raise InputError(
            f"{places[0]}: in split {evaluated.split}, which task {evaluated.task.name} evaluates{more}; "
            f"remove what is evaluated, {way}"
        )
