"""The prompt: a template with named fields, a conversation in its place, and values of fields as text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Annotated, Any

from pydantic import ConfigDict, Field, with_config

from deepthink_cli.errors import InputError, Problem
from deepthink_cli.options import TokensName

SEPARATOR = "\n\n"
PARTS: TokensName = "parts"


@dataclass(frozen=True)
class Template:
    r"""A string with named fields that ends with the label field: `Review: {text}\nSentiment: {label}`.

    `separator` is written after every demonstration. `{{` and `}}` are literal braces. `label_separator` divides the
    labels of a row that may have several; None if every row has one label. `tokens` says whether the whole prompt is
    tokenised, or each of its parts alone. Raises InputError if the pattern cannot be filled or does not end with its
    label field.
    """

    pattern: str
    separator: str = SEPARATOR
    label_separator: str | None = None
    tokens: TokensName = "prompt"

    def __post_init__(self) -> None:
        names = self.fields
        if len(names) < 2:
            reason = "needs a text field and a label field, as in 'Review: {text}\\nSentiment: {label}'"
            raise InputError.of("template", repr(self.pattern), reason)
        if len(set(names)) != len(names):
            raise InputError.of("template", repr(self.pattern), "a field is duplicated; use each once")
        if _parsed(self.pattern)[-1][1] is None:
            raise InputError.of("template", repr(self.pattern), "must end with its label field, nothing may follow it")

    @classmethod
    def of_fields(cls, names: Iterable[str], label_field: str, separator: str = SEPARATOR) -> Template:
        """The template made of a row's field names: `Article: ...` lines, the label last."""
        texts = [name for name in names if name != label_field]
        named = [(name, name.replace("_", " ").strip()) for name in (*texts, label_field)]
        lines = [f"{words[:1].upper()}{words[1:]}: {{{name}}}" for name, words in named]
        return cls("\n".join(lines), separator)

    @property
    def label_field(self) -> str:
        """Name of the field that the model predicts: the last one."""
        return self.fields[-1]

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Names of the fields that make a query."""
        return self.fields[:-1]

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields, in order."""
        return tuple(name for _, name in _parsed(self.pattern) if name is not None)

    @property
    def words(self) -> tuple[str, ...]:
        """The text before every field, and the separator: the parts of a prompt that come from the template."""
        return (*(literal for literal, _ in _parsed(self.pattern)), self.separator)

    @property
    def introduction(self) -> str:
        """The text that introduces the label: every query ends with it."""
        return _parsed(self.pattern)[-1][0]

    def query(self, text: str | Mapping[str, str], written: Callable[[str], str] = str) -> str:
        """The template filled up to the label, as the model reads an unsolved example.

        `written` changes the part up to the end of the last text, before the text that introduces the label.
        """
        values = self.values(text)
        *texts, _ = _parsed(self.pattern)
        asked = "".join(literal + values.get(name or "", "") for literal, name in texts)
        return written(asked) + self.introduction

    def demonstrations(self, examples: Iterable[tuple[str | Mapping[str, str], str]]) -> str:
        """Solved examples, each followed by the separator."""
        return "".join(self.query(text) + label + self.separator for text, label in examples)

    def labels_of(self, answer: str) -> tuple[str, ...]:
        """The labels in an answer, as demonstrations write it: one, or several between separators, without blanks."""
        if self.label_separator is None:
            return (answer,)
        return tuple(dict.fromkeys(filter(None, map(str.strip, answer.split(self.label_separator)))))

    def answer_of(self, labels: Iterable[str]) -> str:
        """Several labels, as demonstrations write them: `bug; account` for the separator `;`."""
        separator = self.label_separator or ""
        return (separator if separator[-1:].isspace() else f"{separator} ").join(labels)

    def values(self, text: str | Mapping[str, str]) -> dict[str, str]:
        """The text fields' values, stripped; a plain string is the value of a single text field."""
        if isinstance(text, str):
            if len(self.text_fields) > 1:
                raise InputError(f"template needs the fields {', '.join(self.text_fields)}; a single string was given")
            return {self.text_fields[0]: text.strip()}
        missing = [name for name in self.text_fields if name not in text]
        if missing:
            raise InputError(f"field {missing[0]!r} is missing; the template needs {', '.join(self.text_fields)}")
        return {name: text[name].strip() for name in self.text_fields}


@lru_cache(maxsize=256)  # every row of a file is filled into the same pattern
def _parsed(pattern: str) -> tuple[tuple[str, str | None], ...]:
    """The literals of a pattern, each with the name of the field after it; None after the last literal."""
    try:
        parsed = list(Formatter().parse(pattern))
    except ValueError as error:
        raise InputError.of("template", repr(pattern), f"{error}; write a literal brace twice") from error
    for _, name, form, conversion in parsed:
        if name is not None and (form or conversion or name.isdigit() or not name or set(name) & set("{}[]!:.")):
            written = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            reason = f"{{{written}}} is not a field name; use one without . : ! [ ] or braces"
            raise InputError.of("template", repr(pattern), reason)
    return tuple((literal, name) for literal, name, _, _ in parsed)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Chat:
    """The form of prompts as conversations: an optional system message, and the digest of the chat template.

    `template_sha256` is empty until demonstrations are tokenised. Raises InputError for a system message that is not
    valid Unicode.
    """

    system: str | None = None
    template_sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""

    def __post_init__(self) -> None:
        try:
            (self.system or "").encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError.of("system", ascii(self.system), "is not valid Unicode; write it in UTF-8") from error

    def __str__(self) -> str:
        return "as a chat" if self.system is None else f"as a chat, system message {self.system!r}"


MAX_TEXT = 2**20  # the most bytes of a text: no model reads so much, and a tokenizer needs a second for it


def text_value(value: Any, where: str, field: str) -> str:
    """A field's value as text: strings stripped, numbers and true/false written as in JSON.

    Raises InputError if it is missing, empty, not finite, a list or object, holds a lone surrogate, or has more
    than `MAX_TEXT` bytes.
    """
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(Problem(f"{field!r} is {value}; use a string", place=where))
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        raise InputError(Problem(f"{field!r} is empty; fill it or omit the row", place=where))
    if not isinstance(value, str):
        raise InputError(Problem(f"{field!r} is a {type(value).__name__}; use a string", place=where))
    text = value.strip()
    if not text:
        raise InputError(Problem(f"{field!r} is empty; fill it or omit the row", place=where))
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        surrogate = ascii(text[error.start])
        raise InputError(f"{where}: {field!r} holds the lone surrogate {surrogate}; remove it") from error
    if size > MAX_TEXT:
        raise InputError(
            f"{where}: {field!r} has {size:,} bytes, at most {MAX_TEXT:,} are read; shorten it or split the row"
        )
    return text


def distinct(values: Sequence[str], where: Problem) -> tuple[str, ...]:
    """The values as a tuple; raises InputError, about `where`, if one is duplicated."""
    for value in values:
        if values.count(value) > 1:
            raise InputError(where.because(f"{value!r} is duplicated; keep one"))
    return tuple(values)
