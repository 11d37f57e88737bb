"""The interface of a step, which changes the answer to a row by an option; `scoring.scoring` joins the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from deepthink_cli.options import Options

if TYPE_CHECKING:
    from deepthink_cli.data.examples import Query, Skipped
    from deepthink_cli.io.tables import Columns
    from deepthink_cli.model.tokens import AfterLabel, Ended, TokenizedQuery
    from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
    from deepthink_cli.scoring.prediction import Prediction, Scores

Fits = Callable[["Query"], bool]


class Step(Options):
    """A step between a row and the scores of its candidates: its fields are its options.

    The methods here change nothing; a subclass overrides the methods for its change. A step whose options all have
    their defaults is not used. A stored correction holds only for the options with which it was estimated, those of
    `only_of_rows` steps excepted. A step that is `only_of_scores` changes nothing that the model reads before a
    candidate, and so no hidden state. A step that `attends` chooses the parts that queries attend to; an engine then
    gives no hidden states.
    """

    source: ClassVar[str] = ""  # the step's origin, such as a paper
    only_of_rows: ClassVar[bool] = False
    only_of_scores: ClassVar[bool] = False
    attends: ClassVar[bool] = False

    @property
    def recorded(self) -> dict[str, Any]:
        """The options that differ from their defaults, as JSON values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def check(self, memory: Provenance, name: str) -> None:
        """Raise InputError, naming the memory, if the step has no meaning for it."""

    def rows(self, rows: Iterable[Query | Skipped], fits: Fits) -> Iterable[Query | Skipped]:
        """The rows as they are scored; `fits` says whether the model holds a row after the memory."""
        return rows

    def written(self, asked: str) -> str:
        """The text of a query up to the end of its last field, given that text as the template writes it."""
        return asked

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """The function that gives candidates further tokens; `after` is the text after a label. None for none."""
        return None

    def attended(
        self, demonstrations: TokenizedDemonstrations, queries: Sequence[TokenizedQuery]
    ) -> list[tuple[int, ...]] | None:
        """The places, ascending, of the parts of a composed memory that each query attends to; None for all parts."""
        return None

    def compared(self, scores: Scores) -> Scores:
        """The scores whose `sums` are compared."""
        return scores

    def prefers_short(self) -> bool:
        """Whether a candidate never wins against another one that its tokens begin with."""
        return True

    def described(self) -> str:
        """The step's effect on queries, as in `each query is written 2 times`; empty if labels say it."""
        return ""

    def of_row(self, prediction: Prediction) -> Mapping[str, Any]:
        """The fields that the step adds to the output row of a prediction."""
        return self.recorded

    def columns(self) -> Columns:
        """The columns of `of_row` in a table."""
        return dict.fromkeys(self.recorded, "text")
