"""What a task file may say: the catalogue's own files and a user's are read by the same rules."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from deepthink_cli.errors import InputError
from deepthink_cli.template import SEPARATOR, Template

NAME = r"^[a-z0-9][a-z0-9_-]*$"
Sampling = Literal["random", "stratified", "first"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def _column(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


Pattern = Annotated[str, BeforeValidator(_pattern)]


class Piece(_Part):
    """Where one field of the template comes from: a column, and what is done with its text.

    `column` may lead into a nested column (`choices.text`). `pattern` keeps its first group; `values`
    replaces the text by another; `line` writes a list, one line an item, with {letter} and {item}.
    """

    column: str
    pattern: Pattern | None = None
    values: dict[str, str] | None = None
    line: str | None = None


class Candidates(_Part):
    """Where a row's own candidates come from: a list column, several columns, options in a text, or fixed words.

    `options` is matched against the lines of a text column: its groups are `name` and `text`. `write`
    makes the candidate's words from {text}, {name} and the row's other fields; `number` is how many a row
    must have.
    """

    column: str | list[str] | None = None
    words: list[str] | None = None
    options: Pattern | None = None
    write: str = "{text}"
    number: int | None = Field(None, ge=2)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.column is None) == (self.words is None):
            raise ValueError("give a column, or words that every row shares")
        if self.options is not None and not (
            isinstance(self.column, str) and {"name", "text"} <= set(re.compile(self.options).groupindex)
        ):
            raise ValueError("options: needs one text column, and a pattern with the groups name and text")
        return self


class Answer(_Part):
    """Where the true answer stands: a label word, a candidate's name, or a number counted from `first`.

    `names` is a list column with the candidates' names (`choices.label`).
    """

    column: str
    names: str | None = None
    first: int = 0


class Split(_Part):
    """One split: its hub configuration and name where they differ from the task's, or a pinned file.

    `url` is a JSON file (its rows under `field`) or, with `pattern`, a text whose matches are the rows:
    the pattern's named groups are the columns.
    """

    config: str | None = None
    split: str | None = None
    url: str | None = None
    field: str | None = None
    pattern: Pattern | None = None


class Hub(_Part):
    """A data set on the hub, pinned to one revision."""

    path: str
    revision: str
    config: str | None = None


class Protocol(_Part):
    """Which rows are evaluated: a split, or `sample` of its rows, drawn once and for all."""

    split: str
    sample: int | None = Field(None, ge=1)
    rows: int | None = Field(None, ge=1)


class Task(_Part):
    """One task: prompt, candidates, splits and protocols (the paper's appendix A to C)."""

    name: str
    title: str
    template: str
    separator: str = SEPARATOR
    fields: dict[str, Annotated[Piece, BeforeValidator(_column)]]
    labels: list[str] | None = None
    candidates: Candidates | None = None
    answer: Annotated[Answer, BeforeValidator(_column)]
    shots: int = Field(ge=1)
    sampling: Sampling = "random"
    demonstrations: str
    dev: str | None = None
    hub: Hub | None = None
    folder: str
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
            raise ValueError(error.messages[0]) from error
        return template

    @model_validator(mode="after")
    def _complete(self) -> Self:
        pattern = Template(self.template, self.separator)
        if (self.labels is None) == (self.candidates is None):
            raise ValueError("give labels, or candidates where every row has its own")
        if self.labels is not None and len(set(self.labels)) < max(2, len(self.labels)):
            raise ValueError("labels: at least two, none twice")
        missing = [name for name in pattern.text_fields if name not in self.fields]
        if missing:
            raise ValueError(f"fields: {missing[0]!r} of the template is missing")
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
        """The template that writes demonstrations and queries."""
        return Template(self.template, self.separator)
