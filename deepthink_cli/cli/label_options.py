"""Options of labelling: what output rows hold, and what becomes of rows that cannot be labelled."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from deepthink_cli.cli.options import DATA, OUTPUT, option
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions, OnError


@dataclass(frozen=True)
class LabelArguments:
    """The labels and the fields of the input that an output row holds."""

    top: Annotated[
        str | None,
        typer.Option(
            "--top",
            metavar="K",
            rich_help_panel=OUTPUT,
            help="List the K best labels, each with its probability (not calibrated).",
        ),
    ] = None
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="P",
            rich_help_panel=OUTPUT,
            help="Leave the label out (null) where its probability (not calibrated) is below P.",
        ),
    ] = None
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            metavar="A,B,...",
            rich_help_panel=OUTPUT,
            help="Fields of the input to keep: all, none, or names. Columns of a table, under input in JSON.",
        ),
    ] = "all"

    def checked(self) -> LabelOptions:
        """The validated options; raises InputError for each wrong value."""
        return LabelOptions.checked(**asdict(self))


@dataclass(frozen=True)
class ErrorArguments:
    """What becomes of rows that cannot be labelled."""

    on_error: Annotated[
        OnError,
        option(
            "--on-error",
            panel=DATA,
            help="For a row that cannot be read or scored: stop, or skip it and write its error in its place.",
        ),
    ] = "stop"
    allow_errors: Annotated[
        str | None,
        option(
            "--allow-errors",
            panel=DATA,
            metavar="N",
            help="Exit with 0 if at most N rows were skipped. Default: 0.",
        ),
    ] = None

    def checked(self) -> ErrorOptions:
        """The validated options; raises InputError for a wrong number, and for one where rows are not skipped."""
        return ErrorOptions.checked(**asdict(self))
