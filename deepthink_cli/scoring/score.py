"""Score queries: every candidate's log-probability after the memory and the query (Eq. 1 and 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepthink_cli.engine.base import Engine, ScoringPlan
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.options import ScoreName


@dataclass(frozen=True)
class Scores:
    """One query's candidates: `sums` are log-probabilities in nats, `means` the same per token."""

    sums: tuple[float, ...]
    means: tuple[float, ...]

    def compared(self, score: ScoreName) -> Scores:
        """The same with the means as sums for the score `mean`; for `end`, the tokens already hold the end."""
        return Scores(self.means, self.means) if score == "mean" else self


class NotFiniteError(DeepThinkError):
    """Scores that are NaN or infinite; `queries` has a message for each such query, by its place in the plan."""

    def __init__(self, queries: Mapping[int, str]) -> None:
        super().__init__(queries[min(queries)])
        self.queries = queries


def score(engine: Engine, memory: Memory, queries: Sequence[TokenizedQuery]) -> list[Scores]:
    """Score every query's candidates against one memory, in order.

    A candidate's score is the sum of the log-probabilities of its tokens, computed in float32; the query has
    positions L onward. Raises as `score_each` does.
    """
    return score_each(engine, [memory], engine.plan(queries))[0]


def score_each(engine: Engine, memories: Sequence[Memory], plan: ScoringPlan) -> list[list[Scores]]:
    """Score a plan against several memories: one list of scores, in the order of the queries, for each.

    Raises InputError if a memory does not have the model's shapes, or a memory, a query and its candidate together
    are too long for the model, and NotFiniteError, naming the query, for scores that are NaN or infinite.
    """
    for memory in memories:
        engine.check_memory(memory)
        if plan.longest is not None:
            check_length(engine.limits, engine.identity.id, memory.length, plan.longest)
    sums = engine.score(memories, plan)
    check_finite(engine, plan, *sums)
    return [[_scores(*pair) for pair in zip(sums_of_memory, plan.queries, strict=True)] for sums_of_memory in sums]


def check_length(limits: Limits, model: str, length: int, query: TokenizedQuery) -> None:
    """Raise InputError unless a memory of `length` tokens, the query and its longest candidate fit together."""
    most, tokens = limits.max_tokens(length), query.longest
    if most is not None and length + tokens > most:
        raise InputError(
            f"{query.where or 'a query'}: too long: {tokens} tokens after {length} of memory, {model} holds {most} "
            f"({limits.reason(length)}); shorten it, or make the memory of fewer demonstrations"
        )


def check_finite(engine: Engine, plan: ScoringPlan, *sums: Sequence[Sequence[float]]) -> None:
    """Raise NotFiniteError unless all scores (queries, candidates) of a plan by each memory are finite."""
    messages: dict[int, str] = {}
    for sums_of_memory in sums:
        for place, (query, scores) in enumerate(zip(plan.queries, sums_of_memory, strict=True)):
            for candidate, value in enumerate(scores, start=1):
                if not math.isfinite(value) and place not in messages:
                    where = query.where or f"query {place + 1}"
                    messages[place] = f"{where}: the score of candidate {candidate} is {value}: {engine.advice()}"
    if messages:
        raise NotFiniteError(messages)


def _scores(sums: list[float], query: TokenizedQuery) -> Scores:
    means = (value / len(answer) for value, answer in zip(sums, query.answers, strict=True))
    return Scores(tuple(sums), tuple(means))
