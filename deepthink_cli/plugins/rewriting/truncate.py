"""Texts that are too long for the model: their end, or their start, is read (`--truncate`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from deepthink_cli.data.examples import Query, Skipped, Text
from deepthink_cli.errors import InputError
from deepthink_cli.io.tables import Columns
from deepthink_cli.options import DATA, Flag
from deepthink_cli.scoring.step import Fits, Step

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction


class Truncate(Step):
    """A text that is too long after the demonstrations is cut at one end to as many characters as fit.

    Only the longest field is cut. A row that is still too long stays as it is.
    """

    source: ClassVar[str] = "deepthink"
    only_of_rows: ClassVar[bool] = True

    truncate: Annotated[
        Literal["end", "start"] | None,
        Flag(DATA, "Of a text that is too long for the model, read only the end, or the start; its row says so."),
    ] = None

    def rows(self, rows: Iterable[Query | Skipped], fits: Fits) -> Iterator[Query | Skipped]:
        """The rows, shortened where they do not fit."""
        for row in rows:
            with suppress(InputError):  # the error is raised again where the row is scored
                if isinstance(row, Query) and not fits(row):
                    row = self._shortened(row, fits)
            yield row

    def of_row(self, prediction: Prediction) -> Mapping[str, Any]:
        """The number of characters that were not read, if there are any."""
        return {"truncated": prediction.query.truncated} if prediction.query.truncated else {}

    def columns(self) -> Columns:
        """A number."""
        return {"truncated": "integer"}

    def _shortened(self, query: Query, fits: Fits) -> Query:
        fields = query.text if isinstance(query.text, Mapping) else {"": query.text}
        name = max(fields, key=lambda each: len(fields[each]))
        whole = fields[name]

        def kept(characters: int) -> Query:
            part = whole[:characters] if self.truncate == "start" else whole[len(whole) - characters :]
            text: Text = part if isinstance(query.text, str) else {**query.text, name: part}
            return replace(query, text=text, truncated=len(whole) - characters)

        # A text that is a little longer can have a token less, so the last steps are tried one by one.
        characters = 1
        while characters < len(whole) and fits(kept(characters)):
            characters = min(2 * characters, len(whole))
        characters = bisect_right(range(1, characters), False, key=lambda number: not fits(kept(number)))
        while characters and not fits(kept(characters)):
            characters -= 1
        return kept(characters) if characters else query
