"""The score of a candidate (`--score NAME`): the paper's sum of log-probabilities, or another form.

With the score `end`, a candidate is scored with the first token of the text that follows a label in the demonstrations:
the separator, or the end of the reply in a chat. It is tokenised together with the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from deepthink_cli.errors import InputError, option
from deepthink_cli.options import METHOD, Flag, named_by
from deepthink_cli.registry import Registry, instance_of
from deepthink_cli.scoring.prediction import Scores
from deepthink_cli.scoring.step import Step

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import AfterLabel, Ended

SUM = "sum"


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

    source: ClassVar[str] = "deepthink"
    separates: ClassVar[bool] = True

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """Gives every candidate its end; raises InputError where nothing follows a label."""
        following = after()
        if not following.text:
            raise InputError.of(
                "score", "end", f"the separator after the demonstrations is empty; use {option('score')} sum or mean"
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


SCORES: Registry[Sum] = Registry("scores", {SUM: Sum(), "mean": Mean(), "end": End()}, instance_of(Sum))


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
