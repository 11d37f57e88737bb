"""Guess from a file of rows which column is the label and which are texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deepthink_cli.data.row import Row
from deepthink_cli.errors import InputError

MOST_LABELS = 100
LABELS = ("label", "labels", "class", "category", "target", "sentiment", "topic", "intent", "answer", "gold", "y")
CANDIDATES = ("candidates", "choices", "options", "endings")
_LONGEST_LABEL = 60  # characters
_IDS = re.compile(r"(.*[_\W])?(id|idx|index|uuid|guid|url|date|time|timestamp)", re.IGNORECASE)


@dataclass
class Column:
    """What was seen in a column: texts with two words or more, the distinct values, and the first lists."""

    worded: int = 0
    filled: int = 0
    lists: int = 0
    numbers: int = 0
    longest: int = 0
    values: Counter[str] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        """Count a value; None, empty strings and -1, the mark of a missing label, are not counted."""
        if isinstance(value, list):
            self.lists += 1
        if value is None or isinstance(value, list | dict):
            return
        text = str(value).strip()
        if text in ("", "-1"):
            return
        self.filled += 1
        self.worded += " " in text
        self.numbers += bool(re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?", text, re.IGNORECASE))
        self.longest = max(self.longest, len(text))
        if text in self.values or len(self.values) <= MOST_LABELS:
            self.values[text] += 1

    @property
    def may_be_label(self) -> bool:
        """Whether the values are few, short and repeated."""
        few = 2 <= len(self.values) <= min(MOST_LABELS, self.filled - 1)
        return few and not self.lists and self.longest <= _LONGEST_LABEL

    @property
    def may_be_text(self) -> bool:
        """Whether there are values, and not only numbers."""
        return self.filled > self.numbers and not self.lists


@dataclass(frozen=True)
class Guess:
    """The columns of a task: the texts, the label with its values and their counts, or the candidates' column."""

    rows: int
    texts: tuple[str, ...]
    label: str
    labels: dict[str, int]
    candidates: str | None
    unused: tuple[str, ...]


def guessed(rows: Iterable[Row], name: str, label: str | None = None) -> Guess:
    """The columns of a file named `name`; `label` names the label's, if it is known.

    Raises InputError, with the way out, if the label cannot be told or no column has texts.
    """
    columns, count = dict[str, Column](), 0
    for row in rows:
        count += 1
        for key, value in row.fields.items():
            columns.setdefault(key, Column()).add(value)
    candidates = next((key for key in columns if key.lower() in CANDIDATES and columns[key].lists), None)
    label = _label(columns, name, label, candidates)
    others = {key: column for key, column in columns.items() if key not in (label, candidates) and column.may_be_text}
    texts = [key for key in others if not _IDS.fullmatch(key)] or list(others)
    texts = [key for key in texts if columns[key].worded * 2 > columns[key].filled] or texts
    if not texts:
        raise InputError(f"{name}: no column of texts beside {label!r} among {', '.join(columns)}")
    unused = tuple(key for key in columns if key not in (*texts, label, candidates))
    return Guess(count, tuple(texts), label, dict(columns[label].values), candidates, unused)


def _label(columns: dict[str, Column], name: str, label: str | None, candidates: str | None) -> str:
    if label is not None:
        if label not in columns:
            raise InputError(f"--label-field {label}: {name} has the columns {', '.join(columns)}")
        if candidates is None and not 2 <= len(columns[label].values) <= MOST_LABELS:
            number = len(columns[label].values)
            amount = f"more than {MOST_LABELS}" if number > MOST_LABELS else str(number)
            raise InputError(
                f"--label-field {label}: {amount} different values in {name}; 2 to {MOST_LABELS} are labels"
            )
        return label
    by_name = {key.lower(): key for key in reversed(columns) if candidates or columns[key].may_be_label}
    named = [by_name[word] for word in LABELS if word in by_name]
    likely = [key for key, column in columns.items() if column.may_be_label and not _IDS.fullmatch(key)]
    if named or len(likely) == 1 or (likely and likely[-1] == list(columns)[-1]):
        return (named or likely[-1:])[0]
    reason = " or ".join(likely) or "none has few values that are repeated"
    raise InputError(
        f"{name}: cannot tell which column is the label: {reason}; name it with --label-field "
        f"(columns: {', '.join(columns)})"
    )
