"""What methods read of a pool with a model: zero-shot observations, and trials of sets as demonstrations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import DemonstrationSet, Example, Query
from deepthink_cli.data.template import Chat, Template
from deepthink_cli.engine.base import Engine, Observation, Reading, ScoringPlan, Sums, shared_prefix
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.prefetch import ahead
from deepthink_cli.io.text import json_sha256
from deepthink_cli.method import Method
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.model.tokens import TokenizedQuery, end_of_demonstrations, query_tokenizer, tokenize_demonstrations
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.likelihood import check_finite, check_length, score_each
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


def read(
    engine: Engine,
    pool: PoolRows,
    rows: Pool,
    reads: Collection[str],
    queries: Sequence[Query],
    chat: Chat | None,
    store: Store | None,
    tell: Tell,
) -> Pool:
    """The pool with the parts that a method reads; hidden states and probabilities are in the plain template."""
    if "trials" in reads:
        rows = replace(rows, trials=EngineTrials(engine, rows.rows, pool.template, pool.labels, chat, store, tell))
    if not {"hidden", "probabilities", "tokens"} & set(reads):
        return rows
    observe = Observer(engine, pool.template, [*rows.rows, *queries], "tokens" in reads, store)
    features, observed = observe(rows.rows, tell), 0
    rows = replace(rows, hidden=features.hidden, probabilities=features.probabilities, tokens=features.tokens)
    if queries:
        targets = observe(queries, tell)
        rows, observed = replace(rows, target_hidden=targets.hidden, target_tokens=targets.tokens), targets.read
    observed += features.read
    return replace(rows, observed=observed, cached=len(rows) + len(queries) - observed)


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


TRYING = "trying sets"  # the name of this stage of a choice, for progress in inputs
_NAME = "probabilities"  # the name of the array in the cache


@dataclass(frozen=True, eq=False)
class _Trial:
    """A set of demonstrations as tokens, the plan of the queries after it, and the key of the result in the cache."""

    demonstrations: TokenizedDemonstrations
    plan: ScoringPlan
    key: str


class EngineTrials:
    """Label probabilities after sets of demonstrations, by an engine, in plain in-context learning (T = 1).

    A zero-shot query follows only the special tokens that the tokenizer adds before a text, or, with a `chat`, the
    template's beginning. With a `store`, results are also cached on disk by their tokens and every byte of the model,
    so that an interrupted selection continues. `sets_read` and `inputs_scored` do not count cached results.
    """

    def __init__(
        self,
        engine: Engine,
        rows: Sequence[Query],
        template: Template,
        labels: Sequence[str],
        chat: Chat | None = None,
        store: Store | None = None,
        tell: Tell = silent,
    ) -> None:
        self.sets_read = self.inputs_scored = 0
        # Without a digest of the weights, models cannot be told apart.
        self._store = store if engine.identity.weights_sha256 else None
        self._engine, self._tell = engine, tell
        self._queries = [Query(row.text, tuple(labels), where=row.where) for row in rows]
        self._examples = [Example(row.text, str(row.gold)) for row in rows]
        self._empty = DemonstrationSet((), template, tuple(labels), chat)
        self._known: dict[str, Floats] = {}

    def probabilities(self, sets: Sequence[Sequence[int]], rows: Sequence[int]) -> Floats:
        """p(y | demonstrations, x), normalised over the labels, in float64 (sets, rows, C).

        `sets` are lists of pool rows in reading order, which may be empty (zero-shot). `rows` are the classified pool
        rows, whose labels the model does not read. Every set is tokenised and checked before the first set is read;
        each distinct set is read once. Raises InputError for a set that is too long for the model with the longest row;
        also raises as `score_each`.
        """
        import numpy as np

        trials = self._prepared(list(dict.fromkeys(map(tuple, sets))), [self._queries[row] for row in rows])
        done = 0
        for group in self._groups(list(trials.values())):
            # A group is run whole, in the same passes as without a cache, so that results are identical.
            if not all(self._is_known(trial.key) for trial in group):
                for trial, sums in zip(group, self._scored(group), strict=True):
                    if not self._is_known(trial.key):
                        self._known[trial.key] = softmax(sums)
                        if self._store is not None:
                            self._store.put(trial.key, {_NAME: self._known[trial.key]})
                self.sets_read += sum(bool(trial.demonstrations.examples) for trial in group)
                self.inputs_scored += len(group) * len(rows)
            done += len(group)
            self._tell(Progress(TRYING, done * len(rows), len(trials) * len(rows)))
        shape = (len(sets), len(rows), len(self._empty.labels))
        return np.array([self._known[trials[tuple(each)].key] for each in sets], np.float64).reshape(shape)

    def _prepared(self, sets: Sequence[tuple[int, ...]], queries: Sequence[Query]) -> dict[tuple[int, ...], _Trial]:
        """The trial of every set; sets after which queries have the same tokens share a plan."""
        tokenizer, template, labels = self._engine.tokenizer, self._empty.template, self._empty.labels
        alike: dict[tuple[str, tuple[int, ...]], tuple[ScoringPlan, str]] = {}
        trials = {}
        for rows in sets:
            if not rows:
                read = TokenizedDemonstrations((), template, labels, token_ids=special_ids(tokenizer))
            else:
                examples = tuple(self._examples[row] for row in rows)
                read = tokenize_demonstrations(tokenizer, replace(self._empty, examples=examples))
            if read.chat is not None:  # a chat template may write queries differently after other turns
                plan, sha256 = self._planned(read, queries)
            else:
                end = end_of_demonstrations(tokenizer, read)
                follows = end.context, end.held
                plan, sha256 = alike[follows] = alike.get(follows) or self._planned(read, queries)
            self._check(len(rows), read.token_ids, plan)
            key = json_sha256([_NAME, *self._engine.identity.computing, read.token_ids, sha256])
            trials[rows] = _Trial(read, plan, key)
        return trials

    def _planned(self, prompt: TokenizedDemonstrations, queries: Sequence[Query]) -> tuple[ScoringPlan, str]:
        """Queries prepared for scoring, and the digest of their tokens."""
        tokenized = query_tokenizer(self._engine.tokenizer, prompt)(queries)
        return self._engine.plan(tokenized), json_sha256([[query.prefix, query.answers] for query in tokenized])

    def _check(self, shots: int, token_ids: tuple[int, ...], plan: ScoringPlan) -> None:
        """Raise InputError unless the set and the longest query after it fit the model."""
        limits, model, length = self._engine.limits, self._engine.identity.id, len(token_ids)
        most, total = limits.max_tokens(), length + (plan.longest.longest if plan.longest else 0)
        if most is not None and total > most:
            raise InputError(
                f"a set of {shots} demonstrations and a query after it have {total} tokens, {model} holds {most} "
                f"({limits.reason()}); use fewer {option('shots')}, or omit the longest rows from the pool"
            )
        self._engine.check_ids(token_ids, f"a set of {shots} demonstrations")

    def _groups(self, trials: Sequence[_Trial]) -> Iterator[list[_Trial]]:
        """The trials in groups whose demonstrations are fastest to read together."""
        group, tokens = list[_Trial](), 0
        for trial in trials:
            length = len(trial.demonstrations.token_ids)
            tokens += length
            if group and tokens > self._engine.tokens_together:
                yield group
                group, tokens = [], length
            group.append(trial)
        if group:
            yield group

    def _scored(self, group: Sequence[_Trial]) -> Iterator[Sums]:
        """The log-probabilities of the queries' labels after every set, in nats."""
        from deepthink_cli.thinking import think_together

        for _, part in groupby(group, key=lambda trial: (id(trial.plan), bool(trial.demonstrations.token_ids))):
            trials = list(part)
            plan = trials[0].plan
            if not trials[0].demonstrations.token_ids:  # there is only one such set
                sums = [list(observation.sums) for observation in self._engine.observe(None, plan)]
                check_finite(self._engine, plan, sums)
                yield sums
                continue
            (memories,) = think_together(self._engine, [(trial.demonstrations, Method(1)) for trial in trials])
            for scores in score_each(self._engine, list(map(self._engine.place, memories)), plan):
                yield [list(each.sums) for each in scores]

    def _is_known(self, key: str) -> bool:
        if key not in self._known and self._store is not None:
            arrays = self._store.get(key)
            if arrays is not None:
                self._known[key] = arrays[_NAME]
        return key in self._known
