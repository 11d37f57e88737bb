"""The test stage: every candidate's log-probability after the memory and the query (Eq. 1 and 6).

Queries of similar length share a pass; their order, and how many there are, change no result.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.engine.choice import Engine, engine_of, read_each
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import PackedRow
from deepthink_cli.engine.passes import Past, score_rows
from deepthink_cli.engine.reading import Reading
from deepthink_cli.errors import DeepThinkError, InputError, ran_out_of_memory
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import LONG, TokenizedQuery, common_length, encode, fewest_tokens


@dataclass(frozen=True)
class Scores:
    """One query's candidates: `sums` are log-probabilities in nats, `means` the same per token."""

    sums: tuple[float, ...]
    means: tuple[float, ...]


@dataclass(frozen=True)
class ScoringPlan:
    """Queries ready to be scored against any memory: the rows to feed, longest first.

    `shared` are the tokens with which every query begins (the template's own words): they are read once.
    """

    queries: tuple[TokenizedQuery, ...]
    shared: tuple[int, ...]
    rows: tuple[PackedRow, ...]


def score(model: LanguageModel, memory: Memory, queries: Sequence[TokenizedQuery]) -> list[Scores]:
    """Score every query's candidates against one memory, in order.

    A candidate's score is the sum of the log-probabilities of its tokens, computed in float32; the
    query stands at positions L onward. Raises InputError where the memory, a query and its candidate
    together are longer than the model holds.
    """
    return score_each(model, [memory], prepare(model, queries))[0]


def prepare(model: LanguageModel, queries: Sequence[TokenizedQuery]) -> ScoringPlan:
    """The part of scoring the queries that no memory affects; raises InputError for tokens unknown to the model."""
    for query in queries:
        model.check_ids(query.ids, query.where or "a query")
    shared = _shared([query.prefix for query in queries])
    rest = [TokenizedQuery(query.prefix[len(shared) :], query.answers) for query in queries]
    return ScoringPlan(tuple(queries), shared, tuple(engine_of(model).rows(rest)))


def score_each(model: LanguageModel, memories: Sequence[Memory], plan: ScoringPlan) -> list[list[Scores]]:
    """Score a plan against several memories: one list of scores, in the order of the queries, for each.

    Raises InputError as `score` does and where a memory has not the model's shapes, and DeepThinkError, naming
    the query, for scores that are NaN or infinite.
    """
    for memory in memories:
        model.check_memory(memory)
        for query in plan.queries:
            check_length(model.limits, model.identity.id, memory.length, query)
    engine = engine_of(model)
    pasts = [_past(model, engine, memory, plan.shared) for memory in memories]
    bounds = [engine.bounds(model, memory, len(plan.rows[0])) for memory in memories] if plan.rows else []
    sums = [[[0.0] * len(query.answers) for query in plan.queries] for _ in memories]
    fed = list(accumulate(map(len, plan.rows)))
    start = 0
    while start < len(plan.rows):
        tokens, most = map(min, zip(*bounds, (engine.batch_tokens, len(plan.rows)), strict=True))
        stop = _stop(fed, start, tokens, most)
        try:
            found = list(score_rows(model, pasts, plan.rows[start:stop], engine.packed))
        except Exception as error:
            if stop - start == 1 or not ran_out_of_memory(error):
                raise
            engine.batch_tokens = (fed[stop - 1] - fed[start] + len(plan.rows[start])) // 2
            continue
        start = stop
        for of_memory, scored in zip(sums, found, strict=True):
            for (number, candidate), value in scored.items():
                of_memory[number][candidate] = value
    _check_finite(model, plan, sums)
    return [[_scores(*pair) for pair in zip(of_memory, plan.queries, strict=True)] for of_memory in sums]


def _check_finite(model: LanguageModel, plan: ScoringPlan, sums: Sequence[Sequence[Sequence[float]]]) -> None:
    for of_memory in sums:
        for number, (query, scores) in enumerate(zip(plan.queries, of_memory, strict=True), start=1):
            for candidate, value in enumerate(scores, start=1):
                if not math.isfinite(value):
                    raise DeepThinkError(
                        f"{query.where or f'query {number}'}: the score of candidate {candidate} is {value}: {model.overflow()}"
                    )


def _stop(fed: Sequence[int], start: int, budget: int, most: int) -> int:
    """Where a pass from row `start` on ends; `fed` [R] are tokens up to each row's end. Passes share what is left."""
    done = fed[start - 1] if start else 0
    left = fed[-1] - done
    share = left / math.ceil(left / budget)
    return max(start + 1, min(start + most, bisect_right(fed, done + share)))


def _shared(prefixes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The leading tokens of all prefixes, but for each one's last, which its answers are read after."""
    if len(prefixes) < 2:
        return ()
    low, high = min(prefixes), max(prefixes)
    most = min(map(len, prefixes)) - 1
    return low[: min(common_length(low, high), most)]


def _past(model: LanguageModel, engine: Engine, memory: Memory, ids: tuple[int, ...]) -> Past:
    """The memory, followed by a reading of the tokens that all queries begin with, in the model's dtype."""
    parts = (memory, *read_each(model, [Reading(ids, memory, memory.length)])) if ids else (memory,)
    past = tuple(part.to(model.layer_devices, model.dtype) for part in parts)
    return past if engine.packed else (reduce(Memory.followed_by, past),)


def _scores(sums: list[float], query: TokenizedQuery) -> Scores:
    means = (value / len(answer) for value, answer in zip(sums, query.answers, strict=True))
    return Scores(tuple(sums), tuple(means))


def check_length(limits: Limits, model: str, length: int, query: TokenizedQuery) -> None:
    """Raise InputError unless a memory of `length` tokens, the query and its longest candidate fit together."""
    _check(limits, model, length, query.longest, query.where)


def check_text(
    limits: Limits, model: str, length: int, tokenizer: PreTrainedTokenizerBase, template: Template, query: Query
) -> None:
    """Raise InputError, where it can be told cheaply, for a text of megabytes that does not fit (see `check_length`).

    Its bytes are counted first; where they do not decide, it is tokenised once, and not yet with every candidate.
    """
    text = template.query(query.text) + max(query.candidates, key=len)
    if len(text) > LONG and limits.most_tokens(length) is not None:
        _check(limits, model, length, fewest_tokens(tokenizer, text), query.where, "at least ")
        _check(limits, model, length, len(encode(tokenizer, [text], special=False)[0]), query.where)


def _check(limits: Limits, model: str, length: int, tokens: int, where: str, bound: str = "") -> None:
    most = limits.most_tokens(length)
    if most is not None and length + tokens > most:
        raise InputError(
            f"{where or 'a query'}: too long: {bound}{tokens} tokens after {length} of memory, {model} holds {most} "
            f"({limits.reason(length)}); shorten it or think about fewer demonstrations"
        )
