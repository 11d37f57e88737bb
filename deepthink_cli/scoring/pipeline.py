"""From rows to predictions, lazily, a chunk of rows at a time: the only way in which candidates are scored.

    rows -> queries -> plan -> scores -> predictions -> corrections

A row is a `Query`, or `Skipped` with the reason, as `data.examples` reads them. `planned` tokenises the queries of a
chunk, sets aside the queries that cannot be scored, and plans the engine's passes. This needs no memory: a chunk is
planned once and scored after any number of memories. `scored` scores a chunk and makes a prediction for each row and
memory; an ensemble's prediction is made of its mean scores. `predictions` joins the two: a thread plans the next chunk
while one is scored. `calibration.calibrator` corrects the predictions, a chunk at a time, or all rows at the end.

`predict`, `eval`, `calibrate`, `diff`, scikit-learn and data frames use `predictions`. `run` scores the same chunks
after every reading of its memories. `tune` and the trials of `select`, which need arrays of scores and no predictions,
plan their queries with the engine and call `score_each`; the harnesses bring tokens and use the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine, ScoringPlan
from deepthink_cli.errors import InputError
from deepthink_cli.io.prefetch import ahead, chunks
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import QueryTokenizer, TokenizedQuery, query_tokenizer
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.heads import head_scores
from deepthink_cli.scoring.likelihood import NotFiniteError, check_fits, observe_each, score_each
from deepthink_cli.scoring.prediction import Prediction, Scores, averaged, prediction_of
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.scoring.step import Fits

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


P = TypeVar("P")
Part = list[Prediction | Skipped]  # the results of a chunk: for each row a prediction by each memory, or `Skipped`

CHUNK = 256  # rows that are labelled together
EVALUATED = 1024  # rows that are evaluated together

TOO_LONG = "too long for the model"
SAME_TOKENS = "candidates that the tokenizer does not tell apart"
UNKNOWN_TOKENS = "tokens that the model does not know"
NOT_FINITE = "scores that are not finite"
# The reasons for which a query becomes `Skipped`; the others raise.
NO_REASON: Collection[str] = ()
UNSCORABLE: Collection[str] = (TOO_LONG, SAME_TOKENS)
EVERY_REASON: Collection[str] = (*UNSCORABLE, UNKNOWN_TOKENS, NOT_FINITE)


@dataclass(frozen=True)
class Chunk:
    """Rows in order, the plan of their queries, and the scoring."""

    rows: Sequence[Query | Skipped]
    plan: ScoringPlan
    scoring: Scoring = PLAIN

    @property
    def queries(self) -> list[Query]:
        """The rows that are scored."""
        return [row for row in self.rows if isinstance(row, Query)]


def predictions(
    engine: Engine,
    members: Sequence[Sequence[Memory]],
    rows: Iterable[Query | Skipped],
    *,
    size: int = CHUNK,
    flush: bool = False,
    scoring: Scoring = PLAIN,
    skip: Collection[str] = NO_REASON,
    layers: Sequence[int] = (),
) -> Iterator[Part]:
    """Yield the predictions of every `size` rows, in order; at most three chunks are in memory.

    With `flush`, a chunk also ends where no row follows at once.

    `members` has one member, or several for an ensemble. A member is the iterations of one memory; all members have the
    same iterations, template and labels. A query that cannot be scored is replaced by `Skipped` if its reason is in
    `skip`, and raises otherwise: InputError if it does not fit the tokenizer or the model's context, NotFiniteError if
    its scores are NaN or infinite. With `layers`, predictions have the hidden states after them.
    """
    members = [[engine.place(memory) for memory in member] for member in members]
    plans = planned(engine, longest_of(members), rows, size=size, flush=flush, scoring=scoring, skip=skip)
    for chunk in ahead(plans):
        yield scored(engine, members, chunk, skip, layers)


def planned(
    engine: Engine,
    demonstrations: TokenizedDemonstrations,
    rows: Iterable[Query | Skipped],
    *,
    size: int = CHUNK,
    flush: bool = False,
    scoring: Scoring = PLAIN,
    skip: Collection[str] = NO_REASON,
) -> Iterator[Chunk]:
    """Yield every `size` rows, ready to be scored after memories with as many tokens as the demonstrations or fewer.

    `flush` and `skip` are as in `predictions`.
    """
    tokenize = query_tokenizer(engine.tokenizer, demonstrations, scoring)
    for step in scoring.steps:
        rows = step.rows(rows, fitting(engine.limits, demonstrations, tokenize))
    for part in chunks(iter(rows), size, flush):
        tokenized = _tokenized(tokenize, [row for row in part if isinstance(row, Query)], skip)
        prepared, kept = list[Query | Skipped](), list[TokenizedQuery]()
        for row in part:
            tokens = row if isinstance(row, Skipped) else _checked(engine, demonstrations, next(tokenized), skip)
            if isinstance(tokens, Skipped):
                prepared.append(replace(tokens, fields=row.fields))
            else:
                prepared.append(row)
                kept.append(tokens)
        yield Chunk(prepared, engine.plan(kept), scoring)


def fitting(limits: Limits, demonstrations: TokenizedDemonstrations, tokenize: QueryTokenizer) -> Fits:
    """A test whether a model of these limits holds the demonstrations and a query with its longest candidate."""
    length = len(demonstrations.token_ids)
    most = limits.after(demonstrations).max_tokens()
    return lambda query: most is None or length + tokenize([query])[0].longest <= most


def scored(
    engine: Engine,
    members: Sequence[Sequence[Memory]],
    chunk: Chunk,
    skip: Collection[str] = NO_REASON,
    layers: Sequence[int] = (),
) -> Part:
    """The predictions of a chunk: for each query a prediction by each memory, or by the mean of the members' scores.

    Raises NotFiniteError for scores that are not finite, or with NOT_FINITE in `skip` scores the other queries again.
    """
    by_memory: list[list[Prediction]] = []
    while chunk.queries:
        try:
            found = list(_measured(engine, [memory for member in members for memory in member], chunk, layers))
            by_memory = [averaged(found[place :: len(members[0])]) for place in range(len(members[0]))]
            break
        except NotFiniteError as error:
            if NOT_FINITE not in skip:
                raise
            chunk = _without(engine, chunk, error.queries)
    of_queries = zip(*by_memory, strict=True)
    part: Part = []
    for row in chunk.rows:
        part += [row] if isinstance(row, Skipped) else next(of_queries)
    return part


def predicted(rows: Iterable[P | Skipped]) -> list[P]:
    """The predictions among rows."""
    return [row for row in rows if not isinstance(row, Skipped)]


def longest(memories: Sequence[Memory]) -> Memory:
    """The memory with the most tokens: the fewest queries fit after it."""
    return max(memories, key=lambda memory: memory.length)


def longest_of(members: Sequence[Sequence[Memory]]) -> TokenizedDemonstrations:
    """The demonstrations of the member with the most tokens."""
    return longest([member[0] for member in members]).origin.demonstrations


def _measured(
    engine: Engine, memories: Sequence[Memory], chunk: Chunk, layers: Sequence[int]
) -> Iterator[list[Prediction]]:
    """For each memory, the predictions of all queries, with their states, or the scores of the memory's head, if any.

    A head has no scores for a query whose candidates are not the memory's labels.
    """

    def of(memory: Memory, scores: Sequence[Scores]) -> list[Prediction]:
        return [prediction_of(query, memory.iteration, each) for query, each in zip(chunk.queries, scores, strict=True)]

    heads = [None if layers else memory.head for memory in memories]  # if not in use, only some members may have one
    if not layers and (not any(heads) or chunk.scoring.of_parts):
        yield from map(of, memories, score_each(engine, memories, chunk.plan, chunk.scoring))
        return
    for memory, head in zip(memories, heads, strict=True):
        observed = layers if head is None else head.layers
        scores, states = observe_each(engine, memory, chunk.plan, observed, chunk.scoring)
        found: dict[int, dict[str, float]] = {}
        if head is not None:
            places = [n for n, query in enumerate(chunk.queries) if {*query.candidates} == {*head.weights}]
            named = [dict(zip(chunk.queries[n].candidates, scores[n].sums, strict=True)) for n in places]
            logs = [[each[label] for label in head.weights] for each in named]
            if places:
                found = dict(zip(places, head_scores(head, [states[n] for n in places], logs), strict=True))
        shown = [state.numpy() for state in states] if layers else [None] * len(states)
        pairs = zip(of(memory, scores), shown, strict=True)
        yield [replace(each, by_head=found.get(n), states=state) for n, (each, state) in enumerate(pairs)]


def _tokenized(
    tokenize: QueryTokenizer, queries: Sequence[Query], skip: Collection[str]
) -> Iterator[TokenizedQuery | Skipped]:
    try:
        yield from tokenize(queries)
    except InputError as error:
        if SAME_TOKENS not in skip:
            raise
        if len(queries) == 1:
            yield Skipped(error.problems, SAME_TOKENS, queries[0].fields)
            return
        for query in queries:
            yield from _tokenized(tokenize, [query], skip)


def _checked(
    engine: Engine, demonstrations: TokenizedDemonstrations, query: TokenizedQuery | Skipped, skip: Collection[str]
) -> TokenizedQuery | Skipped:
    """The query, or why it is skipped; unknown tokens that are not skipped raise in the engine's plan."""
    if isinstance(query, Skipped):
        return query
    try:
        check_fits(engine.limits, engine.identity.id, demonstrations, query)
    except InputError as error:
        if TOO_LONG not in skip:
            raise
        return Skipped(error.problems, TOO_LONG)
    try:
        if UNKNOWN_TOKENS in skip:
            engine.check_ids(query.ids, query.where or "a query")
    except InputError as error:
        return Skipped(error.problems, UNKNOWN_TOKENS)
    return query


def _without(engine: Engine, chunk: Chunk, queries: Mapping[int, str]) -> Chunk:
    """The chunk without the queries at these places, each skipped for the reason given with it."""
    places = iter(range(len(chunk.plan.queries)))
    rows: list[Query | Skipped] = []
    for row in chunk.rows:
        message = None if isinstance(row, Skipped) else queries.get(next(places))
        rows.append(row if message is None else Skipped((message,), NOT_FINITE, row.fields))
    kept = [query for place, query in enumerate(chunk.plan.queries) if place not in queries]
    return Chunk(rows, engine.plan(kept), chunk.scoring)
