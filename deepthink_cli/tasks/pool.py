"""The pool of a task: its training rows, or labelled rows of a file, none of which it evaluates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from deepthink_cli.data.examples import Example, Query, read_queries
from deepthink_cli.data.rows import RowSource, name_of
from deepthink_cli.errors import InputError, option
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tasks.columns import TaskColumns
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import EvaluationSet, training_rows


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

    Every row has its place before it; `way` is what to do other than removing what is evaluated.
    """
    places = [place for place, row in rows if row in evaluated]
    if places:
        count = len(places) - 1
        more = f", and so {'is 1 other row' if count == 1 else f'are {count} other rows'}" if count else ""
        raise InputError(
            f"{places[0]}: in split {evaluated.split}, which task {evaluated.task.name} evaluates{more}; "
            f"remove what is evaluated, {way}"
        )
