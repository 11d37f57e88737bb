"""Scores of queries after memories (Eq. 1 and 6), and the errors of queries that cannot be scored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.engine.base import Engine, Past, ScoringPlan
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Scores
from deepthink_cli.scoring.scoring import PLAIN, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.memory import Memory


class NotFiniteError(DeepThinkError):
    """Scores are NaN or infinite; `queries` has a message for each query with such scores, by its place in the plan."""

    def __init__(self, queries: Mapping[int, str]) -> None:
        super().__init__(queries[min(queries)])
        self.queries = queries


def score(engine: Engine, memory: Memory, queries: Sequence[TokenizedQuery], scoring: Scoring = PLAIN) -> list[Scores]:
    """Score every query's candidates against one memory, in order.

    A candidate's score is the sum of the log-probabilities of its tokens, in float32, unless the scoring compares
    another value. The query has the positions from L on. Raises as `score_each` does.
    """
    return score_each(engine, [memory], engine.plan(queries), scoring)[0]


def score_each(
    engine: Engine, memories: Sequence[Memory], plan: ScoringPlan, scoring: Scoring = PLAIN
) -> list[list[Scores]]:
    """Score a plan against several memories: for each memory a list of scores, in the order of the queries.

    Raises InputError if a memory does not have the model's shapes, or if a memory, a query and its candidate together
    are too long for the model. Raises NotFiniteError, naming the query, for scores that are NaN or infinite.
    """
    attended: list[list[tuple[int, ...]]] = []  # for each memory, the places of the parts that each query attends to
    for memory in memories:
        _check_fit(engine, memory, plan)
        made = memory.provenance
        found = None if made is None else scoring.attended(made.demonstrations, plan.queries)
        attended.append([()] * len(plan.queries) if found is None else found)
    if any(map(any, attended)):
        sums = []
        for memory, of_memory in zip(memories, attended, strict=True):  # the whole memory for a query without places
            parts = memory.parts
            pasts: list[Past] = [tuple(parts[place] for place in places) or (memory,) for places in of_memory]
            sums.append(engine.score_after(pasts, plan))
    else:
        sums = engine.score(memories, plan)
    check_finite(engine, plan, *sums)
    return [
        [scoring.compared(Scores.of(*each)) for each in zip(of_memory, plan.queries, places, strict=True)]
        for of_memory, places in zip(sums, attended, strict=True)
    ]


def observe_each(
    engine: Engine, memory: Memory, plan: ScoringPlan, layers: Sequence[int], scoring: Scoring = PLAIN
) -> tuple[list[Scores], list[Tensor]]:
    """Score a plan against one memory, with the hidden states (L, W) of each query; raises as `score_each`."""
    _check_fit(engine, memory, plan)
    if layers and layers[-1] > len(memory.keys):
        raise InputError(f"a correction by layer {layers[-1]} of a model with {len(memory.keys)}; store another one")
    observed = engine.observe(memory, plan, layers=layers)
    check_finite(engine, plan, [each.sums for each in observed])
    scores = [scoring.compared(Scores.of(each.sums, query)) for each, query in zip(observed, plan.queries, strict=True)]
    return scores, [each.hidden for each in observed]


def _check_fit(engine: Engine, memory: Memory, plan: ScoringPlan) -> None:
    engine.check_memory(memory)
    if plan.longest is not None:
        provenance, limits = memory.provenance, engine.limits
        if provenance is not None:
            limits = limits.after(provenance.demonstrations)
        check_length(limits, engine.identity.id, memory.length, plan.longest)


def check_fits(limits: Limits, model: str, demonstrations: TokenizedDemonstrations, query: TokenizedQuery) -> None:
    """Raise InputError unless demonstrations, the query and its longest candidate fit together."""
    check_length(limits.after(demonstrations), model, len(demonstrations.token_ids), query)


def check_length(limits: Limits, model: str, length: int, query: TokenizedQuery) -> None:
    """Raise InputError unless a memory of `length` tokens, the query and its longest candidate fit together."""
    most, tokens = limits.max_tokens(), query.longest
    if most is not None and length + tokens > most:
        raise InputError(
            f"{query.where or 'a query'}: too long: {tokens} tokens after {length} of memory, {model} holds {most} "
            f"({limits.reason()}); shorten it, or make the memory of fewer demonstrations"
        )


def check_finite(engine: Engine, plan: ScoringPlan, *sums: Sequence[Sequence[float]]) -> None:
    """Raise NotFiniteError unless the scores (queries, candidates) of a plan by every memory are finite."""
    messages: dict[int, str] = {}
    for sums_of_memory in sums:
        for place, (query, scores) in enumerate(zip(plan.queries, sums_of_memory, strict=True)):
            for candidate, value in enumerate(scores, start=1):
                if not math.isfinite(value) and place not in messages:
                    where = query.where or f"query {place + 1}"
                    messages[place] = (
                        f"{where}: the score of candidate {candidate} is {value}: {engine.identity.overflow}"
                    )
    if messages:
        raise NotFiniteError(messages)
