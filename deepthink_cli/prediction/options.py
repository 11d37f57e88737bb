"""The options of labelling: the contents of output rows, and the treatment of rows that cannot be labelled."""

from __future__ import annotations

import csv
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from deepthink_cli.errors import InputError, option
from deepthink_cli.options import DATA, OUTPUT, Flag, Options

OnError = Literal["stop", "skip"]
ALL, NONE = "all", "none"


class LabelOptions(Options):
    """The labels and the fields of the input that an output row holds.

    `top` is the number of best labels to list. Below the probability `threshold`, a row has no label but a guess;
    `max_error` is the share of wrong labels for which the memory's labelled rows give the threshold. `columns` are the
    fields of the input that are kept; None for all. With `scores`, a table has the scores and corrections of all
    labels, which rows in JSON always have.
    """

    top: Annotated[
        int | None,
        Field(ge=1),
        Flag(
            OUTPUT,
            "List the K best labels, each with its probability.",
            "K",
            hint="a number of labels, 1 or more",
            variable=False,
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Field(ge=0, le=1),
        Flag(
            OUTPUT,
            "Leave the label out (null) where its probability is below P.",
            "P",
            hint="a probability between 0 and 1, as in 0.8",
            variable=False,
        ),
    ] = None
    max_error: Annotated[
        float | None,
        Field(ge=0.001, le=0.5),
        Flag(
            OUTPUT,
            "Leave the label out (null) where it is unsure, so that at most the share R of the labels is wrong.",
            "R",
            hint="a share from 0.001 to 0.5, as in 0.05",
            variable=False,
        ),
    ] = None
    scores: Annotated[
        bool, Flag(OUTPUT, "Also write the scores and corrections of all labels in a table; JSON always has them.")
    ] = False
    columns: Annotated[
        tuple[str, ...] | None,
        Flag(
            OUTPUT,
            "Fields of the input to keep: all, none, or names. Columns of a table, under input in JSON.",
            "A,B,...",
            variable=False,
        ),
    ] = Field(ALL, validate_default=True)

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
    """The treatment of rows that cannot be labelled, and the number of rows that may be skipped."""

    on_error: Annotated[
        OnError,
        Flag(DATA, "For a row that cannot be read or scored: stop, or skip it and write its error in its place."),
    ] = "stop"
    allow_errors: Annotated[
        int | None,
        Field(ge=0),
        Flag(DATA, "Exit with 0 if at most N rows were skipped. Default: 0.", "N", hint="a number of rows, 0 or more"),
    ] = None

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """As for all options; also raises InputError for a number of errors where rows are not skipped."""
        options = super().checked(**values)
        if options.allow_errors is not None and not options.skip:
            raise InputError.of(
                "allow_errors", options.allow_errors, f"only with {option('on_error')} skip; add it, or omit both"
            )
        return options

    @property
    def skip(self) -> bool:
        """Whether rows are skipped."""
        return self.on_error == "skip"
