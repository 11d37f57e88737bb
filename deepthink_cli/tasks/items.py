"""Convert a row of a data set to a query, or to a row with the fields of a template, by the task's definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deepthink_cli.data.examples import CANDIDATES, DemonstrationSet, Query, read_demonstrations, same_label
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.tasks.format import Candidates, Free, Piece, Task, all_matches, found

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class DoesNotFit(Exception):
    """A row that the task cannot use; rows are counted by this reason."""


@dataclass(frozen=True)
class _Choice:
    """A candidate of a row: its name (often a letter; may be empty) and its text."""

    name: str
    text: str


def query_of(task: Task, row: Row, any_number: bool = False, labelled: bool = True) -> Query:
    """The row as a query with its candidates and, if it is `labelled`, its true answer.

    Duplicate candidates are merged. With `any_number`, as for demonstrations, the number of candidates is not checked.
    Raises DoesNotFit for a row without text, without an answer, with an answer that is not a candidate, or with the
    wrong number of candidates.
    """
    texts = {name: _text(piece, row.fields) for name, piece in task.fields.items()}
    for name in task.prompt.text_fields:
        if not texts[name]:
            raise DoesNotFit("no text")
    candidates: Sequence[str]
    if task.free is not None:
        candidates, gold = (), _free_answer(task, task.free, row) if labelled else None
    elif task.labels is not None:
        candidates, gold = task.labels, label_of(task, row) if labelled else None
    else:
        candidates, gold = _own_candidates(task, row, texts, any_number, labelled)
    fields = task.prompt.text_fields
    text = texts[fields[0]] if len(fields) == 1 else {name: texts[name] for name in fields}
    return Query(text, tuple(candidates), gold, row.where, dict(row.fields))


def label_of(task: Task, row: Row) -> str:
    """The true label word of a row; raises DoesNotFit for a row without a label, and for an unknown label."""
    assert task.labels is not None
    return task.labels[_answer(task, row, [_Choice(label, label) for label in task.labels])]


def _free_answer(task: Task, free: Free, row: Row) -> str:
    """The text of the answer column, as demonstrations show it; raises DoesNotFit if no answer is found in it."""
    value = _value(row.fields, task.answer.column)
    text = "" if value is None else str(value).strip()
    if not text:
        raise DoesNotFit("no answer")
    if free.gold is not None and found(free.gold, text) is None:
        raise DoesNotFit("the answer does not match the task's pattern")
    return text


def has_columns(task: Task, row: Row) -> bool:
    """Whether the row has the columns of the template's fields."""
    try:
        for name in task.prompt.text_fields:
            _value(row.fields, task.fields[name].column)
    except DoesNotFit:
        return False
    return True


def _own_candidates(
    task: Task, row: Row, texts: Mapping[str, str], any_number: bool, labelled: bool
) -> tuple[list[str], str | None]:
    """The row's own candidates, and the true candidate if the row is `labelled`."""
    assert task.candidates is not None
    choices = _choices(task.candidates, row.fields)
    number = task.candidates.number
    if number is not None and len(choices) != number and not any_number:
        raise DoesNotFit(f"{len(choices)} candidates, not {number}")
    names = [{**texts, "name": choice.name, "text": choice.text} for choice in choices]
    written = [task.candidates.write.format_map(each).strip() if each["text"] else "" for each in names]
    gold = written[_answer(task, row, choices)] if labelled else None
    candidates = list(dict.fromkeys(written))
    if len(candidates) < 2 or "" in candidates:
        raise DoesNotFit("an empty candidate" if "" in candidates else "candidates of the same words")
    return candidates, gold


def _value(fields: Mapping[str, Any], column: str) -> Any:
    value: Any = fields
    if column in fields:  # a table's column may have a dot in its name
        return fields[column]
    for name in column.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise DoesNotFit(f"no column {column!r}")
        value = value[name]
    return value


def _list(fields: Mapping[str, Any], column: str) -> list[Any]:
    value = _value(fields, column)
    if not isinstance(value, list):
        raise DoesNotFit(f"column {column!r} must be a list")
    return value


def _text(piece: Piece, fields: Mapping[str, Any]) -> str:
    value = _value(fields, piece.column)
    if piece.line is not None:  # an item a line
        if not isinstance(value, list) or len(value) > len(LETTERS):
            raise DoesNotFit(f"column {piece.column!r} must be a list of at most {len(LETTERS)}")
        lettered = zip(LETTERS, value, strict=False)
        return "\n".join(piece.line.format(letter=letter, item=str(item).strip()) for letter, item in lettered)
    if not isinstance(value, str):
        raise DoesNotFit(f"column {piece.column!r} must be a string")
    text = value.strip()
    if piece.pattern is not None:
        matches = all_matches(piece.pattern, text)
        if not matches:
            raise DoesNotFit(f"column {piece.column!r} does not match the task's pattern")
        text = (matches[0][1] or "").strip()
    if piece.values is not None:
        if text not in piece.values:
            raise DoesNotFit(f"column {piece.column!r} must be one of {', '.join(piece.values)}")
        text = piece.values[text]
    return text


def _choices(candidates: Candidates, fields: Mapping[str, Any]) -> list[_Choice]:
    if candidates.words is not None:
        return [_Choice("", word) for word in candidates.words]
    if candidates.options is not None:
        assert isinstance(candidates.column, str)
        lines = str(_value(fields, candidates.column)).splitlines()
        matches = [match for line in lines for match in all_matches(candidates.options, line.strip(), whole=True)]
        return [_Choice((match["name"] or "").strip(), (match["text"] or "").strip()) for match in matches]
    assert candidates.column is not None
    if isinstance(candidates.column, str):
        texts = _list(fields, candidates.column)
    else:
        texts = [_value(fields, column) for column in candidates.column]
    return [_Choice("", str(text).strip()) for text in texts]


def _answer(task: Task, row: Row, choices: Sequence[_Choice]) -> int:
    """The index of the true candidate."""
    value = _value(row.fields, task.answer.column)
    if value is None or value == "" or value == -1:
        raise DoesNotFit("no answer")
    names = [choice.name for choice in choices]
    if task.answer.names is not None:
        names = [str(name) for name in _list(row.fields, task.answer.names)]
    text, classes = str(value).strip(), row.classes.get(task.answer.column, ())
    if type(value) is int and 0 <= value < len(classes) and classes[value] in names:
        text = classes[value]  # the file may number the classes otherwise than the task
    if (name := same_label(names, text)) is not None:
        index = names.index(name)
    else:
        index = int(text) - task.answer.first if re.fullmatch(r"\d{1,6}", text) else -1
    if not 0 <= index < len(choices):
        raise DoesNotFit("the answer is no candidate")
    return index


@dataclass(frozen=True)
class TaskColumns:
    """Converts rows for a template with `labels`, which are empty if every row has its own candidates.

    A row with the template's fields is read by them; only its true label may be written as in the task's data set (a
    number, in the task's answer column). Any other row is read in the columns of the task. `find` returns the task, or
    None for an unknown task; it is called for the first row that needs the task. `made_for` is the task's name in
    messages. With `free`, rows need no candidates. `words` maps values of true labels to words, before the task does.
    """

    template: Template
    labels: tuple[str, ...]
    find: Callable[[], Task | None]
    made_for: str | None = None
    free: bool = False
    words: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, row: Row, labelled: bool) -> Row:
        """The row with the template's fields; raises InputError for a row that fits neither template nor task."""
        answerable = self.free or self.labels or CANDIDATES in row.fields
        fits = row.fields.keys() >= set(self.template.text_fields) and answerable
        if fits and not (labelled and self.labels):
            return row
        text = str(row.fields.get(self.template.label_field, "")).strip()
        if fits and same_label(self.labels, self.words.get(text, text)) is not None:
            return row  # its true label is a label word, and no code of one
        task = self.find()
        if task is None:
            missing = [name for name in self.template.text_fields if name not in row.fields]
            if missing and self.made_for is not None:  # the columns of an unknown task may hold the field
                reason = (
                    f"field {missing[0]!r} is missing; the row has {', '.join(row.fields) or 'none'}; "
                    f"for the columns of task {self.made_for}, name its file with {option('task')}"
                )
                raise InputError(Problem(reason, place=row.where))
            return row
        answer = str(row.fields.get(task.answer.column, "")).strip()
        if answer in self.words:
            row = replace(row, fields={**row.fields, task.answer.column: self.words[answer]})
        try:
            if fits:
                return Row({**row.fields, self.template.label_field: label_of(task, row)}, row.where)
            if has_columns(task, row):
                return self._converted(row, task, labelled)
        except DoesNotFit as error:
            raise InputError(f"{row.where}: does not fit task {task.name}: {error}") from error
        if row.fields.keys() >= {*self.template.text_fields, self.template.label_field}:
            return row  # a demonstration needs no candidates
        columns = dict.fromkeys(piece.column for piece in task.fields.values())
        reason = (
            f"has neither the template's fields ({', '.join(self.template.text_fields)}) nor the columns "
            f"of task {task.name} ({', '.join(columns)}); the row has {', '.join(row.fields) or 'none'}"
        )
        raise InputError(Problem(reason, place=row.where))

    def _converted(self, row: Row, task: Task, labelled: bool) -> Row:
        query = query_of(task, row, any_number=True, labelled=labelled)
        text = query.text
        names = self.template.text_fields
        fields = dict(text) if not isinstance(text, str) else {names[0]: text}
        own = {} if self.labels else {CANDIDATES: list(query.candidates)}
        gold = {} if query.gold is None else {self.template.label_field: query.gold}
        return Row({**fields, **own, **gold}, row.where)


def demonstrations_for(task: Task, source: str | RowSource) -> DemonstrationSet:
    """Demonstrations from a file, in the task's prompt: rows with the template's fields or the task's columns."""
    columns = TaskColumns(task.prompt, tuple(task.labels or ()), lambda: task)
    return read_demonstrations(
        replace(RowSource.of(source), convert=columns), task.template, None, task.labels, task.separator
    )
