"""Hidden states and label probabilities of rows without demonstrations, from one pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Chat, Template
from deepthink_cli.engine.base import Engine, Observation, Reading, ScoringPlan, shared_prefix
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.prefetch import ahead
from deepthink_cli.io.text import json_sha256
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.model.tokens import TokenizedQuery, query_tokenizer
from deepthink_cli.scoring.likelihood import check_length
from deepthink_cli.scoring.pipeline import CHUNK
from deepthink_cli.scoring.softmax import softmax
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepthink_cli.selection.registry import Floats, States

    Arrays = Mapping[str, NDArray[Any]]
    from deepthink_cli.memory import Memory

READING = "reading rows"  # the name of this stage of a choice, for progress
VERSION = 1  # the version of the features; cached features of another version are not used


@dataclass(frozen=True, eq=False)
class Features:
    """The features of n rows; W is the width of the model, C the number of candidates.

    `hidden` (n, W) are the inputs of the output embedding at the token that predicts the label. `probabilities` (n, C)
    are the softmax of the candidates' summed log-probabilities; None if rows differ in their candidates. `tokens`, or
    None, are the hidden states (s, W) of each row's own tokens, which come after the common beginning of all rows. The
    model read `read` rows; the others came from the cache.
    """

    hidden: States
    probabilities: Floats | None
    tokens: list[States] | None
    read: int


def observed(
    engine: Engine,
    pool: PoolRows,
    rows: Pool,
    reads: Collection[str],
    queries: Sequence[Query],
    chat: Chat | None,
    store: Store | None,
    tell: Tell,
) -> Pool:
    """The pool with the hidden states and probabilities of its rows and of the queries, in the plain template."""
    observe = Observer(engine, pool.template, [*rows.rows, *queries], "tokens" in reads, store)
    features, read = observe(rows.rows, tell), 0
    rows = replace(rows, hidden=features.hidden, probabilities=features.probabilities, tokens=features.tokens)
    if queries:
        targets = observe(queries, tell)
        rows, read = replace(rows, target_hidden=targets.hidden, target_tokens=targets.tokens), targets.read
    read += features.read
    return replace(rows, observed=read, cached=len(rows) + len(queries) - read)


class Observer:
    """Observes rows as zero-shot queries: after the special tokens that begin a text, without demonstrations.

    With `every_token`, the hidden states of all own tokens are kept. `queries` must be all queries that will be
    compared, since the tokens with which they all begin are not a row's own. Results are kept in `store`, by model and
    token ids.
    """

    def __init__(
        self,
        engine: Engine,
        template: Template,
        queries: Sequence[Query],
        every_token: bool = False,
        store: Store | None = None,
    ) -> None:
        self.engine, self.every_token = engine, every_token
        self.store = store if engine.identity.weights_sha256 else None  # without a digest, models cannot be told apart
        self.tokenize = query_tokenizer(engine.tokenizer, template)
        self.special = special_ids(engine.tokenizer)
        self.outermost: tuple[TokenizedQuery, ...] = ()
        if every_token:
            # Queries whose common beginning is the common beginning of all queries; every plan has them. Without them,
            # the rows of a chunk that happen to begin alike would lose those tokens.
            by_tokens = sorted(self.tokenize(queries), key=lambda query: query.prefix)
            self.outermost = (by_tokens[0], by_tokens[-1], min(by_tokens, key=lambda query: len(query.prefix)))

    def __call__(self, queries: Sequence[Query], tell: Tell = silent) -> Features:
        """Observe rows, a chunk at a time, while a thread prepares the next chunk.

        Raises InputError for a query that is too long for the model, and DeepThinkError, naming the query, for values
        that are NaN or infinite.
        """
        import numpy as np

        done = read = 0
        chunks: list[Arrays] = []
        tell(Progress(READING, 0, len(queries)))
        for tokenized, key, prepared in ahead(self._prepared(queries)):
            if isinstance(prepared, ScoringPlan):
                chunks.append(self._observed(tokenized, key, prepared))
                read += len(tokenized)
            else:
                chunks.append(prepared)
            done += len(tokenized)
            tell(Progress(READING, done, len(queries)))
        joined = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
        tokens = np.split(joined["tokens"], np.cumsum(joined["lengths"])[:-1]) if self.every_token else None
        is_alike = len({query.candidates for query in queries}) == 1
        probabilities = softmax(joined["sums"].reshape(len(queries), -1)) if is_alike else None
        return Features(joined["hidden"], probabilities, tokens, read)

    @cached_property
    def memory(self) -> Memory | None:
        """A reading of the special tokens; None without special tokens."""
        return self.engine.read([Reading(self.special)])[0] if self.special else None

    def _prepared(self, queries: Sequence[Query]) -> Iterator[tuple[list[TokenizedQuery], str, Arrays | ScoringPlan]]:
        """Every chunk with its key, and its stored features or the plan to observe it."""
        for start in range(0, len(queries), CHUNK):
            tokenized = self.tokenize(queries[start : start + CHUNK])
            for query in tokenized:
                check_length(self.engine.limits, self.engine.identity.id, len(self.special), query)
            key = self._key(tokenized)
            stored = None if self.store is None else self.store.get(key)
            yield tokenized, key, self.engine.plan([*tokenized, *self.outermost]) if stored is None else stored

    def _observed(self, tokenized: Sequence[TokenizedQuery], key: str, plan: ScoringPlan) -> Arrays:
        """The features of a chunk, which are also stored."""
        import numpy as np

        observations = self.engine.observe(self.memory, plan, self.every_token)[: len(tokenized)]
        states = [observation.hidden.numpy() for observation in observations]
        arrays = {
            "sums": np.concatenate([np.array(observation.sums) for observation in observations]),
            "hidden": np.stack([state[-1] for state in states] if self.every_token else states),
        }
        if self.every_token:
            arrays |= {"tokens": np.concatenate(states), "lengths": np.array([len(state) for state in states])}
        if not all(np.isfinite(array).all() for array in arrays.values()):
            self._refuse(tokenized, observations)
        if self.store is not None:
            self.store.put(key, arrays)
        return arrays

    def _key(self, tokenized: Sequence[TokenizedQuery]) -> str:
        shared = shared_prefix([query.prefix for query in self.outermost]) if self.every_token else None
        rows = [[query.prefix, query.answers] for query in tokenized]
        return json_sha256(["features", VERSION, *self.engine.identity.computing, self.special, shared, rows])

    def _refuse(self, tokenized: Sequence[TokenizedQuery], observations: Sequence[Observation]) -> None:
        """Raise DeepThinkError for the first query with values that are NaN or infinite."""
        import numpy as np

        for query, observation in zip(tokenized, observations, strict=True):
            if not (np.isfinite(observation.sums).all() and bool(observation.hidden.isfinite().all())):
                where = query.where or "a row"
                raise DeepThinkError(
                    f"{where}: its scores or hidden states are not finite: {self.engine.identity.overflow}"
                )
