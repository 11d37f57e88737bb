"""Labelled rows of a file or of a task: the rows on which a memory is evaluated, and a pool without these rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.opening import OpenedMemory, opened
from deepthink_cli.data.examples import Example, Query, Skipped, queries_or_skipped, read_queries
from deepthink_cli.data.rows import check_rereadable, name_of, rows_or_errors
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.events import Tell, silent
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.inputs import CheckedRows, check_rows
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.format import Free, Task
from deepthink_cli.tasks.items import TaskColumns
from deepthink_cli.tasks.judges import check_may_run, tell_of_programs
from deepthink_cli.tasks.rows import announce, check_memory, in_columns
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import EvaluationSet, evaluation_set, sampled, training_rows

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


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
class _FileQueries:
    """The queries at some places of a file with `checked` rows; every iterator reads the file again."""

    source: RowSource
    demonstrations: TokenizedDemonstrations
    places: frozenset[int]
    checked: CheckedRows
    labelled: bool

    def __iter__(self) -> Iterator[Query | Skipped]:
        template, labels = self.demonstrations.template, self.demonstrations.labels
        queries = queries_or_skipped(self.source, template, labels, self.labelled)
        same = self.checked.digest.same(queries, self.source.name)
        return (query for place, query in enumerate(same) if place in self.places)


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
    memory, problems = opened(memory), Problems()
    source = in_columns(memory, path)
    check_rereadable(source)
    demonstrations = memory.provenance.demonstrations
    checked = check_rows(demonstrations, source, problems, labelled, skip)
    problems.raise_any()
    assert checked is not None
    places = frozenset(sampled(range(checked.count), limit))
    queries = _FileQueries(source, demonstrations, places, checked, labelled)
    return EvaluatedRows(queries, len(places), source.path, demonstrations, checked=checked, source=source)


def is_labelled(memory: OpenedMemory, path: str | Path | RowSource) -> bool:
    """Whether the first row of a file has a true label; raises InputError for a file without rows."""
    source, template = in_columns(memory, path), memory.provenance.demonstrations.template
    if source.row_format == "txt":
        return False
    row = next(rows_or_errors(source))
    if isinstance(row, InputError):
        raise row
    with suppress(InputError):  # a row in a task's columns, some of which are missing
        row = source.converted(row)
    return template.label_field in row.fields


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


def check_read_for(rows: EvaluatedRows, memory: OpenedMemory) -> None:
    """Raise InputError if rows were read for a memory with another template or other labels."""
    read_for, demonstrations = rows.demonstrations, memory.provenance.demonstrations
    if (read_for.template, read_for.labels) != (demonstrations.template, demonstrations.labels):
        raise InputError(
            f"{memory.name}: the rows of {rows.split} were read for a memory with the labels "
            f"{', '.join(read_for.labels)} and the template {read_for.template.pattern!r}; read them for this memory"
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
    return PoolRows.of(name_of(source), queries, task.prompt, labels, check_queries=check)


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
