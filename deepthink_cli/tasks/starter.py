"""`deepthink tasks new`: a commented task file from a file of rows, whose columns are guessed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepthink_cli.data.formats.lines import refuse_texts
from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.atomic import check_output, writing
from deepthink_cli.io.text import printable
from deepthink_cli.tasks.catalogue import built_in, groups
from deepthink_cli.tasks.files import validated
from deepthink_cli.tasks.format import Task

MAX_LABELS = 100
LABELS = ("label", "labels", "class", "category", "target", "sentiment", "topic", "intent", "answer", "gold", "y")
CANDIDATES = ("candidates", "choices", "options", "endings")
_LONGEST_LABEL = 60  # characters
_IDS = re.compile(r"(.*[_\W])?(id|idx|index|uuid|guid|url|date|time|timestamp)", re.IGNORECASE)


@dataclass
class Column:
    """The counts of a column: texts with two words or more, the distinct values, and the first lists."""

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
        if text in self.values or len(self.values) <= MAX_LABELS:
            self.values[text] += 1

    @property
    def may_be_label(self) -> bool:
        """Whether the values are few, short and repeated."""
        few = 2 <= len(self.values) <= min(MAX_LABELS, self.filled - 1)
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
    """The guessed columns of the file `name`; `label` names the label column, if it is known.

    Raises InputError, with a way out, if no column is clearly the label or no column has texts.
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
            raise InputError.of("label_field", label, f"{name} has the columns {', '.join(columns)}")
        if candidates is None and not 2 <= len(columns[label].values) <= MAX_LABELS:
            number = len(columns[label].values)
            amount = f"more than {MAX_LABELS}" if number > MAX_LABELS else str(number)
            raise InputError.of(
                "label_field", label, f"{amount} different values in {name}; 2 to {MAX_LABELS} are labels"
            )
        return label
    by_name = {key.lower(): key for key in reversed(columns) if candidates or columns[key].may_be_label}
    named = [by_name[word] for word in LABELS if word in by_name]
    likely = [key for key, column in columns.items() if column.may_be_label and not _IDS.fullmatch(key)]
    if named or len(likely) == 1 or (likely and likely[-1] == list(columns)[-1]):
        return (named or likely[-1:])[0]
    reason = " or ".join(likely) or "none has few values that are repeated"
    raise InputError(
        f"{name}: cannot tell which column is the label: {reason}; name it with {option('label_field')} "
        f"(columns: {', '.join(columns)})"
    )


_SHOTS = 8


def starter(name: str, guess: Guess, file: str, source: RowSource) -> str:
    """The text of a task file; `file` is the name of the file of rows in the task file, `source` the file as read."""
    return "\n".join(_lines(name, guess, file, source)) + "\n"


def _lines(name: str, guess: Guess, file: str, source: RowSource) -> Iterator[str]:
    fields = {_field(column): column for column in (*guess.texts, guess.label)}
    yield f"# Task {name}, guessed by deepthink tasks new from {printable(file)} ({guess.rows:,} rows). Check it."
    yield f"name: {quoted(name)}"
    yield f"title: {quoted(f'{name}: what is {guess.label}?')}"
    yield ""
    yield "# The prompt: every {field} is a column, the label comes last. Write it as a person would."
    yield f"template: {quoted(Template.of_fields(fields, _field(guess.label)).pattern)}"
    yield from _columns(fields, guess)
    yield ""
    yield from _candidates(guess) if guess.candidates is not None else _labels(guess)
    yield ""
    yield "# The rows, beside this file: of every two, one may be a demonstration, and the other is evaluated."
    yield "# For files of their own, write instead:  train: FILE  and  test: FILE"
    yield f"rows: {_file(file, source)}"
    yield ""
    labels = 0 if guess.candidates is not None else len(guess.labels)
    few = max(1, guess.rows // 4, min(labels, guess.rows // 2))  # of the half that demonstrations come from
    shots = min(max(_SHOTS, 2 * labels), few)
    balanced = 0 < labels <= shots
    yield "# How many demonstrations, and how they are drawn: random, stratified (every label as often) or first."
    yield f"shots: {shots}"
    yield f"sampling: {'stratified' if balanced else 'random'}"


def _file(file: str, source: RowSource) -> str:
    """The value of `rows`: the file, with its format, header and quotes if the suffix does not say them."""
    read = [] if source.format is None else [f"format: {source.format}"]
    read += [] if source.header else ["header: false"]
    read += [] if source.quotes is None else [f"quotes: {str(source.quotes).lower()}"]
    return f"{{{', '.join([f'file: {quoted(file)}', *read])}}}" if read else quoted(file)


def _columns(fields: dict[str, str], guess: Guess) -> Iterator[str]:
    if any(field != column for field, column in fields.items()):
        yield "# Where the fields come from, if their columns have other names."
        pairs = ", ".join(f"{quoted(_field(column))}: {quoted(column)}" for column in guess.texts)
        yield f"fields: {{{pairs}}}"
        yield f"answer: {quoted(guess.label)}"
    if guess.unused:
        yield f"# Columns that are not used: {printable(', '.join(guess.unused))}"


def _labels(guess: Guess) -> Iterator[str]:
    numbers = all(label.isdecimal() for label in guess.labels)
    ordered = sorted(guess.labels, key=lambda label: (int(label) if numbers else 0, label))
    if numbers and [int(label) for label in ordered] == list(range(len(ordered))):
        yield "# Replace the numbers by words, in this order: a model reads words better."
    else:
        yield "# The label words, as the column has them."
    yield "labels:"
    yield from (f"  - {quoted(label)}  # {guess.labels[label]:,} rows" for label in ordered)


def _candidates(guess: Guess) -> Iterator[str]:
    yield f"# Every row has its own candidates; {printable(guess.label)!r} is the right one, or its number from 0."
    yield f"candidates: {{column: {quoted(guess.candidates or '')}}}"


def _field(column: str) -> str:
    """A name for a template's field."""
    name = re.sub(r"\s*[{}\[\]!:.][{}\[\]!:.\s]*", "_", column).strip("_")
    return f"column_{name}" if name.isdigit() or not name else name


def quoted(text: str) -> str:
    """A text as a YAML string in quotation marks, on one line."""
    import yaml

    content = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf"))
    return str(content).strip()


SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class NewTask:
    """A task file that was written, and the guess in it."""

    path: Path
    task: Task
    guess: Guess


def new_task(
    name: str, source: RowSource, output: Path | None = None, label: str | None = None, replace: bool = False
) -> NewTask:
    """Guess a task from the rows of a file, write its task file and load it again.

    The file is `NAME.yaml` unless `output` names another one; it is overwritten only with `replace`. Raises InputError
    for a name that is taken or not valid, and for rows from which no task can be guessed.
    """
    name = name.removesuffix(Path(name).suffix) if name.endswith(SUFFIXES) else name
    if name in built_in() or name in groups():
        raise InputError(f"{name}: is a built-in task; choose another name")
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(f"{name!r}: is not a valid name of a task; use letters, digits, - _ and .")
    path = output or Path(f"{name}.yaml")
    if path.suffix not in SUFFIXES:
        raise InputError.of("output", path, f"a task file ends with .yaml; use {path}.yaml")
    check_output(path)
    if path.exists() and not replace:
        raise InputError.of(
            "output", path, f"exists; give {option('force')} to replace it, or another name with {option('output')}"
        )
    if source.read_once:
        raise InputError.of("from", source.path, "the task file names the file of its rows; give a file")
    refuse_texts(source)
    guess = guessed(read_rows(source), source.name, label)
    text = starter(name, guess, os.path.relpath(source.path, path.parent), source)
    with writing(path) as out:
        out.write(text)
    (task,) = validated(path)
    return NewTask(path, task, guess)
