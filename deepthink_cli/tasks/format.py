"""The format of task files, built-in ones and users' alike, and the use of their regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Formatter
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from deepthink_cli.data.source import FormatName
from deepthink_cli.data.template import SEPARATOR, Template
from deepthink_cli.errors import InputError, parameter
from deepthink_cli.selection.registry import Sampling

SECONDS = 10.0  # the limit for one text; a pattern of nested repetitions may need years
_Match = Any  # re.Match, of the package `regex`


def checked_pattern(text: str) -> str:
    """The pattern; raises ValueError unless it is a regular expression of Python."""
    import regex

    try:
        re.compile(text)
        regex.compile(text)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def all_matches(pattern: str, text: str, whole: bool = False) -> list[_Match]:
    """The matches of a pattern in a text, or with the `whole` text; raises InputError if they take too long."""
    import regex

    try:
        if whole:
            return list(filter(None, [regex.fullmatch(pattern, text, timeout=SECONDS)]))
        return list(regex.finditer(pattern, text, timeout=SECONDS))
    except TimeoutError as error:
        raise InputError(
            f"pattern {pattern!r}: takes more than {SECONDS:g} s on a text of {len(text):,} characters; write it "
            "without repetitions of repetitions"
        ) from error


def found(pattern: str, text: str) -> str | None:
    """The first group of a pattern's last match in a text, without spaces around it; None without a match."""
    matches = all_matches(pattern, text)
    return (matches[-1][1] or "").strip() if matches else None


class _Part(BaseModel):
    """Base of all parts of a task file: unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _column(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


Word = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=1)]
Pattern = Annotated[str, AfterValidator(checked_pattern)]
PROTOCOLS = ("paper", "official")  # of built-in tasks
EXACT, PROGRAM = "exact", "program"  # the judges of answers without and with a `program`


def _check_fields(field: str, pattern: str, known: Iterable[str]) -> None:
    """Raise ValueError if a format string has a placeholder that is not `known`."""
    try:
        pieces = list(Formatter().parse(pattern))
    except ValueError as error:
        raise ValueError(f"{field}: {error}; write a literal brace twice") from error
    for _, name, specification, conversion in pieces:
        if name is not None and (name not in known or specification or conversion):
            allowed = ", ".join(f"{{{placeholder}}}" for placeholder in known)
            raise ValueError(f"{field}: {pattern!r} may contain {allowed} only")


def _check_words(field: str, words: list[str]) -> None:
    if not all(map(str.strip, words)) or len({word.strip() for word in words}) < max(2, len(words)):
        raise ValueError(f"{field}: at least two, none empty, none duplicated")


class Piece(_Part):
    """The source of one template field: a column, and changes to its text.

    `column` may name a nested column (`choices.text`). `pattern` keeps the text of its first group; `values` replaces
    texts; `line` formats each item of a list as a line, with {letter} and {item}.
    """

    column: Word
    pattern: Pattern | None = None
    values: dict[str, str] | None = None
    line: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pattern is not None and not re.compile(self.pattern).groups:
            raise ValueError("pattern: needs a group, as in (.*): only its text is kept")
        if self.line is not None:
            _check_fields("line", self.line, ("letter", "item"))
        return self


class Candidates(_Part):
    """The source of a row's candidates: a list column, several columns, options in a text, or fixed words.

    `options` is a pattern for the lines of a text column, with the groups `name` and `text`. `write` formats a
    candidate from {text}, {name} and the row's other fields; `number` is the required number of candidates.
    """

    column: str | list[str] | None = None
    words: list[str] | None = None
    options: Pattern | None = None
    write: str = "{text}"
    number: int | None = Field(None, strict=True, ge=2)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.column is None) == (self.words is None):
            raise ValueError("give a column, or words that every row shares")
        if self.options is not None and not (
            isinstance(self.column, str) and {"name", "text"} <= set(re.compile(self.options).groupindex)
        ):
            raise ValueError("options: needs one text column, and a pattern with the groups name and text")
        if self.words is not None:
            _check_words("words", self.words)
        return self


class Answer(_Part):
    """The source of the true answer: a label word, a candidate's name, or an index counted from `first`.

    `names` is a list column with the candidates' names (`choices.label`).
    """

    column: Word
    names: str | None = None
    first: int = Field(0, strict=True)


class Free(_Part):
    """Generated answers, and their comparison with the true answers.

    The patterns `extract` and `gold` find the answer in a generated text and in the true answer's column (default: the
    whole column): the first group of the last match. The parts that `ignore` names are removed before the comparison. A
    text ends before a string of `stop` (default: the separator), or after `max_new_tokens`. With a `program`, the
    answer is code: {answer} and the row's columns make a program, and the answer is right if the rest of the program
    after it ends without an error within `seconds`. Another `judge` may compare answers in its own way.
    """

    extract: Pattern | None = None
    gold: Pattern | None = None
    ignore: list[Literal["case", "space", "commas", "punctuation"]] = []
    stop: list[Word] | None = None
    max_new_tokens: Count = 256
    program: Word | None = None
    seconds: Count = 10
    judge: Word | None = None

    @model_validator(mode="after")
    def _has_groups(self) -> Self:
        for name in ("extract", "gold"):
            pattern = getattr(self, name)
            if pattern is not None and not re.compile(pattern).groups:
                raise ValueError(f"{name}: needs a group, as in (.*): only its text is the answer")
        if self.program is not None and self.program.count("{answer}") != 1:
            raise ValueError("program: must contain {answer} once")
        if self.program is not None and not self.program.partition("{answer}")[2].strip():
            raise ValueError("program: nothing follows {answer} that tests it; add the tests, as in {tests}")
        if self.judge is not None and (self.judge == PROGRAM) != (self.program is not None):
            raise ValueError(f"judge: {PROGRAM!r} judges answers with a program, and no other does; omit one")
        return self


class Split(_Part):
    """One split: its hub configuration and name if they differ from the task's, or a file.

    `file` is a file of rows on this machine; `format`, `header` and `quotes` are as in `RowSource`. Of every two rows,
    `half` 1 has one, and `half` 2 the other (see `tasks.splits`). `url` is a JSON file with its rows under `field`;
    with `pattern`, it is a text in which every match is a row, with the pattern's named groups as columns.
    """

    config: str | None = None
    split: str | None = None
    url: str | None = None
    field: str | None = None
    pattern: Pattern | None = None
    file: str | None = None
    format: FormatName | None = None
    header: bool = True
    quotes: bool = True
    half: Literal[1, 2] | None = None

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        if self.pattern is not None and not re.compile(self.pattern).groupindex:
            raise ValueError("pattern: needs named groups, as in (?P<text>.*): they are the columns")
        return self


class Hub(_Part):
    """A data set on the hub, pinned to one revision."""

    path: str
    revision: str
    config: str | None = None


class Protocol(_Part):
    """The rows of an evaluation: a split, or a fixed sample of `sample` of its rows."""

    split: Word
    sample: Count | None = None
    rows: Count | None = None


class Task(_Part):
    """One task: prompt, candidates, splits and protocols (appendices A to C of the paper)."""

    name: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)*$")
    title: str
    template: str
    separator: str = SEPARATOR
    fields: dict[str, Annotated[Piece, BeforeValidator(_column)]]
    labels: list[str] | None = None
    candidates: Candidates | None = None
    free: Free | None = None
    answer: Annotated[Answer, BeforeValidator(_column)]
    shots: Count
    sampling: Sampling = "random"
    demonstrations: Word
    dev: str | None = None
    hub: Hub | None = None
    folder: Word
    splits: dict[str, Split] = {}
    protocols: dict[str, Protocol] = Field(min_length=1)
    groups: list[str] = []
    example: dict[str, Any]
    source: str
    licence: str
    note: str | None = None

    @field_validator("template")
    @classmethod
    def _ends_with_label(cls, template: str) -> str:
        try:
            Template(template)
        except InputError as error:
            raise ValueError(error.problems[0].written(parameter)) from error
        return template

    @model_validator(mode="after")
    def _complete(self) -> Self:
        pattern = Template(self.template, self.separator)
        if sum(each is not None for each in (self.labels, self.candidates, self.free)) != 1:
            raise ValueError("give labels, or candidates if every row has its own, or free if answers are generated")
        if self.labels is not None:
            _check_words("labels", self.labels)
        missing = [name for name in pattern.text_fields if name not in self.fields]
        if missing:
            raise ValueError(f"fields: {missing[0]!r} of the template is missing")
        if self.candidates is not None:
            _check_fields("candidates: write", self.candidates.write, dict.fromkeys(("text", "name", *self.fields)))
        for protocol in self.protocols.values():
            if protocol.split in (self.demonstrations, self.dev):
                raise ValueError(
                    f"demonstrations: come from {protocol.split!r}, which is evaluated; name another split"
                )
            if self.hub is None and self.splits and protocol.split not in self.splits:
                raise ValueError(f"splits: {protocol.split!r} is missing")
        return self

    @property
    def prompt(self) -> Template:
        """The template of demonstrations and queries."""
        return Template(self.template, self.separator)
