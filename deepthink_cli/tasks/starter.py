"""A commented task file to start from, made from a file of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepthink_cli.data.source import FormatName
from deepthink_cli.data.template import Template
from deepthink_cli.io.text import printable
from deepthink_cli.tasks.guess import Guess

_SHOTS = 8


def starter(name: str, guess: Guess, file: str, row_format: FormatName | None = None) -> str:
    """The text of a task file; `file` is the file of rows as the task file names it."""
    return "\n".join(_lines(name, guess, file, row_format)) + "\n"


def _lines(name: str, guess: Guess, file: str, row_format: FormatName | None) -> Iterator[str]:
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
    yield f"rows: {quoted(file)}" if row_format is None else f"rows: {{file: {quoted(file)}, format: {row_format}}}"
    yield ""
    labels = 0 if guess.candidates is not None else len(guess.labels)
    few = max(1, guess.rows // 4, min(labels, guess.rows // 2))  # of the half that demonstrations come from
    shots = min(max(_SHOTS, 2 * labels), few)
    balanced = 0 < labels <= shots
    yield "# How many demonstrations, and how they are drawn: random, stratified (every label as often) or first."
    yield f"shots: {shots}"
    yield f"sampling: {'stratified' if balanced else 'random'}"


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
