"""The score of a candidate (`--score NAME`): the paper's sum of log-probabilities, or another form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from deepthink_cli.errors import InputError
from deepthink_cli.options import METHOD, Flag, named_by
from deepthink_cli.registry import Registry, instance_of, lazy
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


SCORES: Registry[Sum] = Registry(
    "scores",
    {SUM: Sum(), "mean": Mean(), "end": lazy("deepthink_cli.scoring.steps.end:END")},
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
