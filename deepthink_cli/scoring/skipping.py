"""Rows without a prediction: those that cannot be read, tokenised or scored are replaced by the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine, ScoringPlan
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import QueryTokenizer, TokenizedQuery
from deepthink_cli.scoring.score import NotFiniteError, check_length

P = TypeVar("P")

TOO_LONG = "too long for the model"
SAME_TOKENS = "candidates that the tokenizer does not tell apart"
UNKNOWN_TOKENS = "tokens that the model does not know"
NOT_FINITE = "scores that are not finite"


@dataclass(frozen=True)
class ScoringChunk:
    """Rows in order, and the plan of their queries, ready to be scored against any number of memories."""

    rows: Sequence[Query | Skipped]
    plan: ScoringPlan

    @property
    def queries(self) -> list[Query]:
        """The rows that are scored."""
        return [row for row in self.rows if isinstance(row, Query)]


def scoring_chunk(
    engine: Engine, tokenize: QueryTokenizer, length: int, rows: Sequence[Query | Skipped], unknown: bool = True
) -> ScoringChunk:
    """Prepare rows to be scored after a memory of `length` tokens; those that cannot be are replaced by the reason.

    Raises InputError for tokens that the model does not know, unless such rows are replaced as well (`unknown`).
    """
    tokenized = _tokenized(tokenize, [row for row in rows if isinstance(row, Query)])
    prepared, kept = list[Query | Skipped](), list[TokenizedQuery]()
    for row in rows:
        tokens = row if isinstance(row, Skipped) else _fitting(engine, length, next(tokenized), unknown)
        if isinstance(tokens, Skipped):
            prepared.append(tokens)
        else:
            prepared.append(row)
            kept.append(tokens)
    return ScoringChunk(prepared, engine.plan(kept))


def scored(
    engine: Engine,
    chunk: ScoringChunk,
    predict: Callable[[list[Query], ScoringPlan], Sequence[Sequence[P]]],
    skip: bool = False,
) -> list[P | Skipped]:
    """The predictions of a chunk: for each query one by each memory, for a skipped row the reason.

    Raises NotFiniteError for scores that are not finite; with `skip`, the other queries are scored without these.
    """
    predictions: Iterator[Sequence[P]] = iter(())
    while chunk.queries:
        try:
            predictions = zip(*predict(chunk.queries, chunk.plan), strict=True)
            break
        except NotFiniteError as error:
            if not skip:
                raise
            chunk = _without(engine, chunk, error.queries)
    rows: list[P | Skipped] = []
    for row in chunk.rows:
        rows += [row] if isinstance(row, Skipped) else next(predictions)
    return rows


def predicted(rows: Iterable[P | Skipped]) -> list[P]:
    """The predictions among rows."""
    return [row for row in rows if not isinstance(row, Skipped)]


def _tokenized(tokenize: QueryTokenizer, queries: Sequence[Query]) -> Iterator[TokenizedQuery | Skipped]:
    try:
        yield from tokenize(queries)
    except InputError as error:
        if len(queries) == 1:
            yield Skipped(error.messages, SAME_TOKENS)
            return
        for query in queries:
            yield from _tokenized(tokenize, [query])


def _fitting(engine: Engine, length: int, query: TokenizedQuery | Skipped, unknown: bool) -> TokenizedQuery | Skipped:
    if isinstance(query, Skipped):
        return query
    try:
        check_length(engine.limits, engine.identity.id, length, query)
    except InputError as error:
        return Skipped(error.messages, TOO_LONG)
    try:
        if unknown:
            engine.check_ids(query.ids, query.where or "a query")
    except InputError as error:
        return Skipped(error.messages, UNKNOWN_TOKENS)
    return query


def _without(engine: Engine, chunk: ScoringChunk, queries: Mapping[int, str]) -> ScoringChunk:
    """The chunk without the queries at these places, which were skipped for the reason given with each."""
    places = iter(range(len(chunk.plan.queries)))
    rows: list[Query | Skipped] = []
    for row in chunk.rows:
        message = None if isinstance(row, Skipped) else queries.get(next(places))
        rows.append(row if message is None else Skipped((message,), NOT_FINITE))
    kept = [query for place, query in enumerate(chunk.plan.queries) if place not in queries]
    return ScoringChunk(rows, engine.plan(kept))
