"""Try sets of a pool's rows as demonstrations: plain in-context learning (T = 1), in shared passes, cached."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import DemonstrationSet, Example, Query
from deepthink_cli.data.template import Chat, Template
from deepthink_cli.engine.base import Engine, ScoringPlan, Sums
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.text import json_sha256
from deepthink_cli.method import Method
from deepthink_cli.model.boundary import special_ids
from deepthink_cli.model.tokens import end_of_demonstrations, query_tokenizer, tokenize_demonstrations
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.likelihood import check_finite, score_each
from deepthink_cli.scoring.softmax import softmax
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import Floats

TRYING = "trying sets"  # the name of this stage of a choice, for progress in inputs
_NAME = "probabilities"  # the name of the array in the cache


@dataclass(frozen=True, eq=False)
class _Trial:
    """A set of demonstrations as tokens, the plan of the queries after it, and the key of the result in the cache."""

    demonstrations: TokenizedDemonstrations
    plan: ScoringPlan
    key: str


def tried(
    engine: Engine,
    pool: PoolRows,
    rows: Pool,
    reads: Collection[str],
    queries: Sequence[Query],
    chat: Chat | None,
    store: Store | None,
    tell: Tell,
) -> Pool:
    """The pool with trials of its rows as demonstrations."""
    return replace(rows, trials=EngineTrials(engine, rows.rows, pool.template, pool.labels, chat, store, tell))


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
