"""From a row in the hub's columns to a query: the task's file says how, row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepthink_cli.data.examples import Example, Query
from deepthink_cli.data.rows import Row
from deepthink_cli.tasks.format import Candidates, Piece, Task

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class DoesNotFit(Exception):
    """A row that the task cannot use; the message is the reason under which it is counted."""


@dataclass(frozen=True)
class _Choice:
    """A candidate as its row has it: its name (a letter, where it has one) and its text."""

    name: str
    text: str


def item(task: Task, row: Row, any_number: bool = False) -> Query:
    """The row as a query with its candidates and its true answer.

    Candidates of the same words are one candidate. `any_number` lets the number of candidates differ from
    the task's, as in a demonstration. Raises DoesNotFit for a row without an answer, with
    an answer that is no candidate, with another number of candidates than the task's, or without text.
    """
    texts = {name: _text(piece, row.fields) for name, piece in task.fields.items()}
    for name in task.prompt.text_fields:
        if not texts[name]:
            raise DoesNotFit("no text")
    if task.labels is not None:
        candidates = task.labels
        gold = candidates[_place(task, row, [_Choice(label, label) for label in candidates])]
    else:
        assert task.candidates is not None
        choices = _choices(task.candidates, row.fields)
        number = task.candidates.number
        if number is not None and len(choices) != number and not any_number:
            raise DoesNotFit(f"{len(choices)} candidates, not {number}")
        written = [_write(task.candidates.write, choice, texts) for choice in choices]
        gold = written[_place(task, row, choices)]
        candidates = list(dict.fromkeys(written))
        if len(candidates) < 2 or "" in candidates:
            raise DoesNotFit("an empty candidate" if "" in candidates else "candidates of the same words")
    fields = task.prompt.text_fields
    text = texts[fields[0]] if len(fields) == 1 else {name: texts[name] for name in fields}
    return Query(text, tuple(candidates), gold, row.where, dict(row.fields))


def example(query: Query) -> Example:
    """A query with its true answer, as a demonstration."""
    assert query.gold is not None
    return Example(query.text, query.gold)


def _value(fields: Mapping[str, Any], column: str) -> Any:
    value: Any = fields
    for name in column.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise DoesNotFit(f"no column {column!r}")
        value = value[name]
    return value


def _text(piece: Piece, fields: Mapping[str, Any]) -> str:
    value = _value(fields, piece.column)
    if piece.line is not None:
        if not isinstance(value, list) or len(value) > len(LETTERS):
            raise DoesNotFit(f"column {piece.column!r} is no list of at most {len(LETTERS)}")
        pairs = zip(LETTERS, value, strict=False)
        return "\n".join(piece.line.format(letter=letter, item=str(one).strip()) for letter, one in pairs)
    if not isinstance(value, str):
        raise DoesNotFit(f"column {piece.column!r} is no text")
    text = value.strip()
    if piece.pattern is not None:
        found = re.search(piece.pattern, text)
        if found is None:
            raise DoesNotFit(f"column {piece.column!r} does not match the task's pattern")
        text = (found[1] or "").strip()
    if piece.values is not None:
        if text not in piece.values:
            raise DoesNotFit(f"column {piece.column!r} holds another value than {', '.join(piece.values)}")
        text = piece.values[text]
    return text


def _choices(says: Candidates, fields: Mapping[str, Any]) -> list[_Choice]:
    if says.words is not None:
        return [_Choice("", word) for word in says.words]
    if says.options is not None:
        assert isinstance(says.column, str)
        found = [re.fullmatch(says.options, line.strip()) for line in str(_value(fields, says.column)).splitlines()]
        choices = [_Choice((one["name"] or "").strip(), (one["text"] or "").strip()) for one in found if one]
    else:
        assert says.column is not None
        columns = [says.column] if isinstance(says.column, str) else says.column
        values = [_value(fields, column) for column in columns]
        listed = values[0] if isinstance(says.column, str) else values
        if not isinstance(listed, list):
            raise DoesNotFit(f"column {says.column!r} is no list")
        choices = [_Choice("", str(one).strip()) for one in listed]
    return choices


def _write(pattern: str, choice: _Choice, texts: Mapping[str, str]) -> str:
    return pattern.format_map({**texts, "name": choice.name, "text": choice.text}).strip() if choice.text else ""


def _place(task: Task, row: Row, choices: list[_Choice]) -> int:
    """Which candidate is the true one."""
    value = _value(row.fields, task.answer.column)
    if value is None or value == "" or value == -1:
        raise DoesNotFit("no answer")
    names = [choice.name for choice in choices]
    if task.answer.names is not None:
        listed = _value(row.fields, task.answer.names)
        if not isinstance(listed, list):
            raise DoesNotFit(f"column {task.answer.names!r} is no list")
        names = [str(name) for name in listed]
    text = str(value).strip()
    if text in names:
        place = names.index(text)
    else:
        place = int(text) - task.answer.first if re.fullmatch(r"\d{1,6}", text) else -1
    if not 0 <= place < len(choices):
        raise DoesNotFit("the answer is no candidate")
    return place
