"""What changes the answer to a row, one step for each option; `scoring.scoring` puts the steps together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from deepthink_cli.options import Options

if TYPE_CHECKING:
    from deepthink_cli.data.examples import Query, Skipped
    from deepthink_cli.io.tables import Columns
    from deepthink_cli.model.tokens import AfterLabel, Ended, TokenizedQuery
    from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
    from deepthink_cli.scoring.prediction import Prediction
    from deepthink_cli.scoring.scores import Scores

Fits = Callable[["Query"], bool]


class Step(Options):
    """A step between a row and the scores of its candidates: its fields are its options.

    A subclass overrides what the step changes; each method here changes nothing. A step whose options all have their
    defaults is not used. A correction that a memory stores is of the options that were in use when it was estimated:
    of those of every step but one that is `only_of_rows`. A step that is `only_of_scores` changes nothing that the
    model reads before a candidate, and so no hidden state. One that `attends` chooses what queries attend to, where an
    engine gives no hidden states.
    """

    source: ClassVar[str] = ""  # where it comes from, such as a paper
    only_of_rows: ClassVar[bool] = False
    only_of_scores: ClassVar[bool] = False
    attends: ClassVar[bool] = False

    @property
    def recorded(self) -> dict[str, Any]:
        """The options that do not have their defaults, as JSON values."""
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
        """What gives the candidates of queries further tokens, from what follows a label in a prompt; None for none."""
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
        """What the step does to queries, for people, as in `each query is written 2 times`; empty if labels say it."""
        return ""

    def of_row(self, prediction: Prediction) -> Mapping[str, Any]:
        """What the output row of a prediction says of the step."""
        return self.recorded

    def columns(self) -> Columns:
        """The columns of `of_row` in a table."""
        return dict.fromkeys(self.recorded, "text")
