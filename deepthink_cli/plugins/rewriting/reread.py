"""Queries that are written several times before their candidates (`--reread N`; docs/concepts.md)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from deepthink_cli.io.tables import Columns
from deepthink_cli.options import METHOD, Flag
from deepthink_cli.scoring.step import Step

MOST_COPIES = 10  # the most copies of a query in its prompt


class Reread(Step):
    """A query is written several times, in lines of their own, so that the model reads it again."""

    source: ClassVar[str] = "Xu et al. 2023, arXiv 2309.06275"

    reread: Annotated[
        int,
        Field(ge=1, le=MOST_COPIES),
        Flag(
            METHOD,
            f"Write each query N times before its candidates, at most {MOST_COPIES}, so that the model reads it again.",
            "N",
            hint=f"a number from 1 to {MOST_COPIES}",
        ),
    ] = 1

    def written(self, asked: str) -> str:
        """The text in `reread` lines."""
        return "\n".join([asked] * self.reread)

    def described(self) -> str:
        """How often each query is written."""
        return f"each query is written {self.reread} times"

    def columns(self) -> Columns:
        """A number."""
        return {"reread": "integer"}
