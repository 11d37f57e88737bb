"""Steps, which change the answer to a row by an option: their interface, and the steps of this package.

`scoring.scoring` joins the steps in use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from deepthink_cli.data.examples import Query, Skipped, Text
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.tables import Columns
from deepthink_cli.options import DATA, METHOD, Flag, Options, named_by
from deepthink_cli.registry import Registry, instance_of
from deepthink_cli.scoring.prediction import Scores

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import AfterLabel, Ended, TokenizedQuery
    from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
    from deepthink_cli.scoring.prediction import Prediction

MOST_COPIES = 10  # the most copies of a query in its prompt
SUM = "sum"

Fits = Callable[[Query], bool]


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


class Sum(Step):
    """the sum of their log-probabilities, as in the paper"""

    source: ClassVar[str] = "Yang et al. 2023, arXiv 2305.13016"
    only_of_scores: ClassVar[bool] = True
    separates: ClassVar[bool] = False  # whether candidates have an end, so that none begins with the whole of another


class Mean(Sum):
    """the mean log-probability per token"""

    source: ClassVar[str] = "Brown et al. 2020, arXiv 2005.14165"

    def compared(self, scores: Scores) -> Scores:
        """The means in place of the sums."""
        return replace(scores, sums=scores.means)

    def prefers_short(self) -> bool:
        """A further token may raise a mean."""
        return False


class End(Sum):
    """the sum with the first token of what follows a label, so that 'bug report' can win against 'bug'"""

    # The text that follows a label in the demonstrations is the separator, or the end of the reply in a chat. It is
    # tokenised together with the candidate.

    source: ClassVar[str] = "deepthink"
    separates: ClassVar[bool] = True

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """Gives every candidate its end; raises InputError where nothing follows a label."""
        following = after()
        if not following.text:
            raise InputError.of(
                "score",
                "end",
                f"the separator after the demonstrations is empty; use {option('score')} sum or mean",
            )

        def with_ends(ids: Mapping[str, list[int]]) -> Mapping[str, list[int]]:
            followed = following.ids([whole + following.text for whole in ids])
            return {
                whole: _with_end(plain, ended, following.alone)
                for (whole, plain), ended in zip(ids.items(), followed, strict=True)
            }

        return with_ends


def _with_end(plain: Sequence[int], followed: Sequence[int], of_end: Sequence[int]) -> list[int]:
    """The ids of a text and the first token of its end, or of the token that joins both, if the tokenizer joins them.

    `plain` are the ids of the text, `followed` those of the text and its end, `of_end` those of the end alone.
    """
    from deepthink_cli.model.boundary import common_length

    same = common_length(plain, followed)
    if same == len(plain):
        if same == len(followed):
            raise InputError.of(
                "score",
                "end",
                f"the tokenizer writes no token for what follows a label; use {option('score')} sum or mean",
            )
        return list(followed[: same + 1])
    rest = min(common_length(followed[::-1], of_end[::-1]), len(of_end) - 1)
    return list(followed[: max(same + 1, len(followed) - rest)])


SCORES: Registry[Sum] = Registry(
    "scores",
    {SUM: Sum(), "mean": Mean(), "end": End()},
    instance_of(Sum),
)


def score_of(name: str) -> Sum:
    """The form of this name; raises InputError for an unknown one."""
    if name not in SCORES:
        raise InputError.of("score", name, f"use {', '.join(SCORES)}")
    return SCORES[name]


class Score(Step):
    """Candidates are compared by a form of `SCORES`, each a step without options."""

    source: ClassVar[str] = "Yang et al. 2023, arXiv 2305.13016"
    only_of_scores: ClassVar[bool] = True

    score: Annotated[
        Annotated[str, named_by(score_of)],
        Flag(
            METHOD,
            f"Compare candidates by {'; or by '.join(f'{SCORES.summary(name)} ({name})' for name in SCORES.own)}.",
            names=lambda: SCORES,
        ),
    ] = SUM

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """As the form does."""
        return score_of(self.score).ended(after)

    def compared(self, scores: Scores) -> Scores:
        """As the form does."""
        return score_of(self.score).compared(scores)

    def described(self) -> str:
        """What is compared."""
        return f"compared by {SCORES.summary(self.score)}"

    def prefers_short(self) -> bool:
        """As the form does."""
        return score_of(self.score).prefers_short()


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
            yield row if isinstance(row, Skipped) else self._fitting(row, fits)

    def of_row(self, prediction: Prediction) -> Mapping[str, Any]:
        """The number of characters that were not read, if there are any."""
        return {"truncated": prediction.query.truncated} if prediction.query.truncated else {}

    def columns(self) -> Columns:
        """A number."""
        return {"truncated": "integer"}

    def _fitting(self, query: Query, fits: Fits) -> Query:
        try:
            return query if fits(query) else self._shortened(query, fits)
        except InputError:  # the error is raised again where the row is scored
            return query

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
