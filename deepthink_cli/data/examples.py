"""Demonstrations with labels, and queries with candidates, from rows."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deepthink_cli.data.formats.lines import field_of_texts, refuse_texts
from deepthink_cli.data.rows import read_rows, rows_or_errors
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.data.template import SEPARATOR, Chat, Template, distinct, text_value
from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.events import Note
from deepthink_cli.io.text import nearest, told_apart

UNREADABLE = "cannot be read"


@dataclass(frozen=True)
class Skipped:
    """A row without a prediction: its problems, the `reason` under which it is counted, and its fields.

    `fields` are None for a row that cannot be read at all.
    """

    problems: tuple[Problem | str, ...]
    reason: str = UNREADABLE
    fields: Mapping[str, Any] | None = None

    @property
    def error(self) -> str:
        """The problems in one line."""
        return "; ".join(map(str, self.problems))


CANDIDATES = "candidates"
LABEL_SEPARATOR = ","  # between labels that a row has as a list

Text = str | Mapping[str, str]


@dataclass(frozen=True)
class Example:
    """A demonstration (x_i, y_i): the text (a string, or named fields) and its label word."""

    text: Text
    label: str


@dataclass(frozen=True)
class Query:
    """A test input x_test: its text, the candidates Y, and its true label, if known.

    `truncated` is the number of characters that were left out of a text that is too long for the model.
    """

    text: Text
    candidates: tuple[str, ...]
    gold: str | None = None
    where: str = ""
    fields: Mapping[str, Any] | None = None
    truncated: int = field(default=0, repr=False)


@dataclass(frozen=True)
class DemonstrationSet:
    """Demonstrations, the template that formats them, and the label words, in order.

    `labels` is empty if every demonstration has candidates of its own. With a `chat`, the demonstrations are turns of a
    conversation, and the template's separator is not used. `words` are the words that the model reads in place of some
    labels, in demonstrations and as candidates. Demonstrations that are `apart` are read without each other.
    """

    examples: tuple[Example, ...]
    template: Template
    labels: tuple[str, ...]
    chat: Chat | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False

    def word(self, label: str) -> str:
        """The word that the model reads for a label."""
        return self.words.get(label, label)

    @classmethod
    def of(
        cls, examples: Iterable[Example], template: str | Template, labels: Sequence[str] = (), chat: Chat | None = None
    ) -> DemonstrationSet:
        """Create a set; without `labels`, the label words are the examples' labels, in order of appearance."""
        solved = tuple(examples)
        pattern = template if isinstance(template, Template) else Template(template)
        return cls(solved, pattern, tuple(labels) or _seen(solved, pattern), chat)


def read_demonstrations(
    source: str | RowSource,
    pattern: str | None = None,
    label_field: str | None = None,
    labels: Sequence[str] | None = None,
    separator: str = SEPARATOR,
    label_separator: str | None = None,
) -> DemonstrationSet:
    """Read the demonstrations from `source` (see `read_rows`).

    Without `pattern`, the first row's field names make the template; its last field is the label unless `label_field`
    names another. With a `label_separator`, or if the label of every row is a list, a row may have several labels.
    Raises InputError with every mistake, each with file:line.
    """
    problems, source = Problems(), RowSource.of(source)
    rows = _labelled_rows(source, problems)
    template = _template(source, rows[0], pattern, label_field, separator)
    if label_separator is None and all(isinstance(row.fields.get(template.label_field), list) for row in rows):
        label_separator = LABEL_SEPARATOR
    template = replace(template, label_separator=label_separator)
    allowed = distinct(labels, Problem.of("labels", None)) if labels else None
    if label_separator == "":
        raise InputError.of("label_separator", label_separator, "is empty; give the text between labels, as in ;")
    for label in allowed or ():
        if label_separator is not None and label_separator in label:
            raise InputError.of("label_separator", label_separator, f"is in the label {label!r}; use another one")
    words = LabelWords(source, template, allowed)
    examples = problems.each(lambda row: _example(words.read(row), template, allowed), rows)
    problems.raise_any()
    seen = _seen(examples, template)
    if allowed is None and all(CANDIDATES in row.fields for row in rows):
        return DemonstrationSet(tuple(examples), template, ())
    if len(allowed or seen) < 2:
        raise InputError(
            f"{source.name}: one label only, {seen[0]!r}; give a demonstration of another, or name all "
            f"with {option('labels')}"
        )
    return DemonstrationSet(tuple(examples), template, allowed or seen)


def read_pool(
    source: str | RowSource,
    pattern: str | None = None,
    label_field: str | None = None,
    labels: Sequence[str] | None = None,
    separator: str = SEPARATOR,
) -> tuple[Template, tuple[str, ...], list[Query]]:
    """Read labelled rows to choose demonstrations from: the template, the label words, and every row with its fields.

    The template is found as in `read_demonstrations`. Label words that are not given are sorted, so that they do not
    depend on the order of the rows; they are empty if every row has candidates of its own. Raises InputError with every
    mistake, each with file:line.
    """
    problems, source = Problems(), RowSource.of(source)
    rows = _labelled_rows(source, problems)
    template = _template(source, rows[0], pattern, label_field, separator)
    allowed = distinct(labels, Problem.of("labels", None)) if labels else ()
    rows = problems.each(LabelWords(source, template, allowed).read, rows)
    if not allowed and not all(CANDIDATES in row.fields for row in rows):
        allowed = tuple(sorted(set(problems.each(lambda row: _value(row, template.label_field), rows))))
    queries = problems.each(lambda row: _query(row, template, allowed, labelled=True), rows)
    problems.raise_any()
    return template, allowed, queries


def read_queries(
    source: str | RowSource, template: Template, labels: Sequence[str] | None, labelled: bool = False
) -> Iterator[Query]:
    """Yield the queries in `source` one at a time; the `candidates` of a row take precedence over `labels`.

    With `labelled`, every row must hold one of its candidates in the template's label field. If `labels` is None,
    answers are generated: queries have no candidates, and any text may be the true answer. Raises InputError at the
    first bad row.
    """
    for row in queries_or_skipped(source, template, labels, labelled):
        if isinstance(row, Skipped):
            raise InputError(*row.problems)
        yield row


def queries_or_skipped(
    source: str | RowSource, template: Template, labels: Sequence[str] | None, labelled: bool = False
) -> Iterator[Query | Skipped]:
    """Yield the queries as `read_queries` does, and `Skipped` in the place of a bad row.

    Raises InputError for a source that is missing, has no row, or cannot be divided into rows.
    """
    source = RowSource.of(source)
    if labelled:
        refuse_texts(source)
    words = LabelWords(source, template, labels) if labelled else None
    for row in rows_or_errors(source, field_of_texts(source, template)):
        yield query_or_skipped(source, row, template, None if labels is None else tuple(labels), words)


def query_or_skipped(
    source: RowSource,
    row: Row | InputError,
    template: Template,
    labels: tuple[str, ...] | None,
    words: LabelWords | None = None,
) -> Query | Skipped:
    """The query of a row, or `Skipped` for a bad row; a query has no candidates if `labels` is None.

    With `words`, the row has its true label.
    """
    if isinstance(row, InputError):
        return Skipped(row.problems)
    try:
        converted = source.converted(row, words is not None)
        query = _query(converted if words is None else words.read(converted), template, labels, words is not None)
        return replace(query, fields=row.fields)
    except InputError as error:
        return Skipped(error.problems, fields=row.fields)


class LabelWords:
    """Reads rows with words as labels: the source's words for values, or the file's names of classes.

    A number that is one of the `labels` stays as it is. `source.tell` is told once that the names are used.
    """

    def __init__(self, source: RowSource, template: Template, labels: Sequence[str] | None) -> None:
        self._source, self._template, self._labels = source, template, labels or ()
        self._words, self._told = dict(source.words), False

    def read(self, row: Row) -> Row:
        """The row with its label, or each of its labels, as a word; raises InputError for a number without a name."""
        field = self._template.label_field
        if field not in row.fields or not (self._words or field in row.classes):
            return row
        value = row.fields[field]
        if isinstance(value, str) and self._template.label_separator is not None:
            value = list(self._template.labels_of(value))
        read = [self._word(each, row) for each in value] if isinstance(value, list) else self._word(value, row)
        return replace(row, fields={**row.fields, field: read})

    def _word(self, value: Any, row: Row) -> str:
        field = self._template.label_field
        text = text_value(value, row.where, field)
        if text in self._words or text in self._labels or field not in row.classes or type(value) is not int:
            return self._words.get(text, text)
        names = row.classes[field]
        if not 0 <= value < len(names):
            reason = f"{field!r} is {value}, and the file names the classes 0 to {len(names) - 1}; omit the row"
            raise InputError(Problem(reason, place=row.where))
        if not self._told:
            shown = ", ".join(f"{number} as {name!r}" for number, name in enumerate(names[:_SHOWN]))
            more = f", ... ({len(names)} classes)" if len(names) > _SHOWN else ""
            self._source.tell(Note(f"{self._source.name}: {field!r} is read by the file's names, {shown}{more}"))
            self._told = True
        return self._words.get(names[value], names[value])


_SHOWN = 8  # names of classes in a note


def _labelled_rows(source: RowSource, problems: Problems) -> list[Row]:
    """All rows of a source that have labels, with the template's fields; mistakes are added to `problems`.

    Raises InputError with them if there is no row.
    """
    refuse_texts(source)
    rows = problems.each(source.converted, read_rows(source, problems))
    if not rows:
        problems.raise_any()
    return rows


def _template(source: RowSource, row: Row, pattern: str | None, label_field: str | None, separator: str) -> Template:
    if pattern is not None:
        template = Template(pattern, separator)
        if label_field is not None and label_field != template.label_field:
            reason = f"the template ends with {{{template.label_field}}}; end it with {{{label_field}}}"
            raise InputError.of("label_field", label_field, reason)
        return template
    names = [name for name in row.fields if name != CANDIDATES]
    if len(names) < 2:
        raise InputError(
            f"{row.where}: needs a text and a label, found the fields {names}; add the missing field to all rows"
        )
    if label_field is not None and label_field not in names:
        raise InputError.of("label_field", label_field, f"{row.where} has the fields {', '.join(names)}")
    try:
        return Template.of_fields(names, label_field or names[-1], separator)
    except InputError as error:
        way = f"; if the first row is data, give {option('no_header')}" if source.has_header else ""
        raise InputError(f"{row.where}: {error.messages[0]}{way}") from error


def _seen(examples: Iterable[Example], template: Template) -> tuple[str, ...]:
    """The labels of examples, in order of appearance."""
    return tuple(dict.fromkeys(label for example in examples for label in template.labels_of(example.label)))


def _several_labels(row: Row, template: Template, choices: Sequence[str] | None, empty: bool) -> tuple[str, ...]:
    """The labels of a row that may have several: a list, or a text with separators; a list may be `empty`.

    They are in the order of the `choices`, if these are known. Raises InputError for an unknown label, for a label that
    holds the separator, and for a row with candidates of its own.
    """
    name, separator = template.label_field, template.label_separator
    value = _field(row, name)
    if CANDIDATES in row.fields:
        raise InputError(Problem(f"rows with several labels have no {CANDIDATES!r} of their own", place=row.where))
    if isinstance(value, list):
        found = tuple(dict.fromkeys(text_value(each, row.where, name) for each in value))
        wrong = next((each for each in found if str(separator) in each), None)
        if wrong is not None:
            reason = f"label {wrong!r} holds the separator of labels {separator!r}; name another: "
            raise InputError(Problem(f"{reason}deepthink think {option('label_separator')}", place=row.where))
    else:
        found = template.labels_of(text_value(value, row.where, name))
    if not found and not (empty and value == []):
        raise InputError(Problem(f"{name!r} has no label; give one or more", place=row.where))
    if not choices:
        return found
    known = {one_of(choices, label, row.where) for label in found}
    return tuple(label for label in choices if label in known)


def _example(row: Row, template: Template, allowed: tuple[str, ...] | None) -> Example:
    problems = Problems()
    text = problems.tried(_text, row, template)
    label = problems.tried(lambda: _label(row, template, _candidates(row) or allowed, empty=False))
    problems.raise_any()
    return Example(text, label)


def _query(row: Row, template: Template, labels: tuple[str, ...] | None, labelled: bool) -> Query:
    """The row as a query, with its true label if it is `labelled`; without candidates if `labels` is None."""
    problems = Problems()
    text, candidates, gold = problems.tried(_text, row, template), tuple[str, ...](), None
    with problems.collected():
        candidates = () if labels is None else _candidates(row) or labels
        if not candidates and labels is not None:
            raise InputError(f'{row.where}: no candidates; this memory has no label words, add "candidates": [...]')
        gold = _label(row, template, candidates, empty=True) if labelled else None
    problems.raise_any()
    return Query(text, candidates, gold, row.where, row.fields)


def _label(row: Row, template: Template, choices: Sequence[str] | None, empty: bool) -> str:
    """The true label of a row, or its labels; they are among the `choices`, if these are known."""
    if template.label_separator is not None:
        return template.answer_of(_several_labels(row, template, choices, empty))
    label = _value(row, template.label_field)
    return one_of(choices, label, row.where) if choices else label


def _text(row: Row, template: Template) -> Text:
    problems, names = Problems(), template.text_fields
    values = problems.each(lambda name: _value(row, name), names)
    problems.raise_any()
    return values[0] if len(names) == 1 else dict(zip(names, values, strict=True))


def _value(row: Row, name: str) -> str:
    """The text of a field."""
    return text_value(_field(row, name), row.where, name)


def _field(row: Row, name: str) -> Any:
    if name not in row.fields:
        near = nearest(name, row.fields)
        wanted, *meant = told_apart(name, *([near] if near else []))
        hint = "; add it, or rename the field that holds it"
        if meant:
            hint = f"; did you mean {meant[0]}? Read it as {wanted} with {option('map')} {near}={name}"
        reason = f"field {wanted} is missing; the row has {', '.join(row.fields) or 'none'}{hint}"
        raise InputError(Problem(reason, place=row.where))
    return row.fields[name]


def queries_of(inputs: Iterable[Query | str | Mapping[str, str]], candidates: Sequence[str]) -> Iterator[Query]:
    """A query for each input; a text, or the template's fields, gets the candidates. Raises InputError for one text."""
    if isinstance(inputs, str | Mapping):
        raise InputError("inputs: one text; give a list of texts")
    return (each if isinstance(each, Query) else Query(each, tuple(candidates)) for each in inputs)


def same_label(labels: Sequence[str], text: str) -> str | None:
    """The label with the same text, whatever the Unicode normalisation of the two; None if there is none."""
    if text in labels or text.isascii():
        return text if text in labels else None
    composed = unicodedata.normalize("NFC", text)
    return next((each for each in labels if unicodedata.normalize("NFC", each) == composed), None)


def one_of(labels: Sequence[str], label: str, where: str) -> str:
    """The label of `same_label`; raises InputError if there is none."""
    if (same := same_label(labels, label)) is not None:
        return same
    near = nearest(label, labels)
    written, *meant = told_apart(label, *([near] if near else []))
    hint = f"; did you mean {meant[0]}?" if meant else ""
    raise InputError(Problem(f"label {written} is not one of {', '.join(labels)}{hint}", place=where))


def _candidates(row: Row) -> tuple[str, ...] | None:
    if CANDIDATES not in row.fields:
        return None
    values = row.fields[CANDIDATES]
    if not isinstance(values, list) or not values:
        raise InputError(f'{row.where}: "candidates" must be a list of strings, as in ["yes", "no"]')
    return distinct(
        [text_value(value, row.where, CANDIDATES) for value in values], Problem(place=f"{row.where}: candidates")
    )


def example_of(query: Query) -> Example:
    """A query with its true answer, as a demonstration."""
    assert query.gold is not None
    return Example(query.text, query.gold)
