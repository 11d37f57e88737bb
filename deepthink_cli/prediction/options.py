"""The options of labelling: what output rows hold, and what becomes of rows that cannot be labelled."""

from __future__ import annotations

import csv
from typing import Any, Literal, Self

from pydantic import Field, field_validator

from deepthink_cli.errors import InputError
from deepthink_cli.options import Options

OnError = Literal["stop", "skip"]
ALL, NONE = "all", "none"


class LabelOptions(Options):
    """The labels and the fields of the input that an output row holds.

    `top` is the number of best labels to list, `threshold` the probability below which a row has no label, `columns`
    the fields of the input that are kept; None means all.
    """

    top: int | None = Field(None, ge=1)
    threshold: float | None = Field(None, ge=0, le=1)
    columns: tuple[str, ...] | None = None

    @field_validator("columns", mode="before")
    @classmethod
    def _names(cls, text: Any) -> Any:
        """The names in `a,b`, where a name with a comma is in quotation marks; `all` is None, `none` is empty."""
        if not isinstance(text, str):
            return text
        if text in (ALL, NONE):
            return None if text == ALL else ()
        names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
        if "" in names or not names or len(set(names)) < len(names):
            raise ValueError(f"name each field once, as in id,text, or say {ALL} or {NONE}")
        return tuple(names)


class ErrorOptions(Options):
    """What becomes of rows that cannot be labelled, and how many of them may be skipped."""

    on_error: OnError = "stop"
    allow_errors: int | None = Field(None, ge=0)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """As for all options; also raises InputError for a number of errors where rows are not skipped."""
        options = super().checked(**values)
        if options.allow_errors is not None and not options.skip:
            raise InputError(f"--allow-errors {options.allow_errors}: only with --on-error skip; add it, or omit both")
        return options

    @property
    def skip(self) -> bool:
        """Whether rows are skipped."""
        return self.on_error == "skip"
