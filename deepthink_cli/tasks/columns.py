"""Read rows in the columns of a task's data set as rows with the fields of a template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from deepthink_cli.data.examples import CANDIDATES, DemonstrationSet, read_demonstrations
from deepthink_cli.data.rows import RowSource
from deepthink_cli.data.source import Row
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, option
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import DoesNotFit, has_columns, label_of, query_of


@dataclass(frozen=True)
class TaskColumns:
    """Converts rows for a template with `labels`, which are empty if every row has its own candidates.

    A row with the template's fields is read by them, and only its true label may be written as in the task's data set
    (a number, in the task's answer column). Any other row is read in the columns of the task. `find` returns the task,
    or None if it is not known; it is called for the first row that needs it. `made_for` is the task's name in messages.
    With `free`, rows need no candidates.
    """

    template: Template
    labels: tuple[str, ...]
    find: Callable[[], Task | None]
    made_for: str | None = None
    free: bool = False

    def __call__(self, row: Row, labelled: bool) -> Row:
        """The row with the template's fields; raises InputError for a row that fits neither them nor the task."""
        answerable = self.free or self.labels or CANDIDATES in row.fields
        fits = row.fields.keys() >= set(self.template.text_fields) and answerable
        if fits and not (labelled and self.labels and self._is_coded(row)):
            return row
        task = self.find()
        if task is None:
            self._check_fields(row)
            return row
        try:
            if fits:
                return Row({**row.fields, self.template.label_field: label_of(task, row)}, row.where)
            if has_columns(task, row):
                return self._converted(row, task, labelled)
            if row.fields.keys() >= {*self.template.text_fields, self.template.label_field}:
                return row  # a demonstration needs no candidates
            return self._refuse(row, task)
        except DoesNotFit as reason:
            raise InputError(f"{row.where}: does not fit task {task.name}: {reason}") from reason

    def _check_fields(self, row: Row) -> None:
        """Raise InputError if a field is missing that the columns of an unknown task may hold."""
        missing = [name for name in self.template.text_fields if name not in row.fields]
        if missing and self.made_for is not None:
            raise InputError(
                f"{row.where}: field {missing[0]!r} is missing; the row has {', '.join(row.fields) or 'none'}; "
                f"for the columns of task {self.made_for}, name its file with {option('task')}"
            )

    def _is_coded(self, row: Row) -> bool:
        """Whether the row's true label is missing or is not one of the words."""
        return str(row.fields.get(self.template.label_field, "")).strip() not in self.labels

    def _converted(self, row: Row, task: Task, labelled: bool) -> Row:
        query = query_of(task, row, any_number=True, labelled=labelled)
        text = query.text
        names = self.template.text_fields
        fields = dict(text) if not isinstance(text, str) else {names[0]: text}
        own = {} if self.labels else {CANDIDATES: list(query.candidates)}
        gold = {} if query.gold is None else {self.template.label_field: query.gold}
        return Row({**fields, **own, **gold}, row.where)

    def _refuse(self, row: Row, task: Task) -> Row:
        columns = dict.fromkeys(piece.column for piece in task.fields.values())
        raise InputError(
            f"{row.where}: has neither the template's fields ({', '.join(self.template.text_fields)}) nor the columns "
            f"of task {task.name} ({', '.join(columns)}); the row has {', '.join(row.fields) or 'none'}"
        )


def demonstrations_for(task: Task, source: str | RowSource) -> DemonstrationSet:
    """Demonstrations from a file, in the task's prompt: rows with the template's fields or the task's columns."""
    columns = TaskColumns(task.prompt, tuple(task.labels or ()), lambda: task)
    return read_demonstrations(
        replace(RowSource.of(source), convert=columns), task.template, None, task.labels, task.separator
    )
