"""The scores of one query's candidates after one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import TokenizedQuery


@dataclass(frozen=True)
class Scores:
    """The scores of one query's candidates: `sums` of log-probabilities in nats, which are compared, and `means`.

    `means` are per token. `attended` are the places of the demonstrations that the query attends to; empty for all.
    """

    sums: tuple[float, ...]
    means: tuple[float, ...]
    attended: tuple[int, ...] = ()

    @classmethod
    def of(cls, sums: Sequence[float], query: TokenizedQuery, attended: tuple[int, ...] = ()) -> Scores:
        """The scores of a query whose candidates have these sums of log-probabilities."""
        means = (value / len(answer) for value, answer in zip(sums, query.answers, strict=True))
        return cls(tuple(sums), tuple(means), attended)
