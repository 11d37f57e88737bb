"""Choose demonstrations from a pool with a registered method, and record the choice."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from deepthink_cli.data.examples import DemonstrationSet, Query, example_of
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.data.template import Chat
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Tell, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.text import jsonable
from deepthink_cli.provenance import Selected
from deepthink_cli.registry import loaded
from deepthink_cli.selection.features import Observer
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import Choice, Pool, SelectionMethod, selection_method


@dataclass(frozen=True, eq=False)
class Request:
    """The request of a choice: `shots` rows by a method, for queries if the method `reads` them.

    With a `chat`, sets are tried in conversations; hidden states and probabilities are from the plain template. `own`
    are values of the method's own options. `balanced` is None if nothing is asked; `balances` then decides.
    """

    method: str
    shots: int
    seed: int = 0
    balanced: bool | None = None
    queries: Sequence[Query] = ()
    chat: Chat | None = None
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def definition(self) -> SelectionMethod:
        """The method's entry in the registry; raises InputError for an unknown method."""
        return selection_method(self.method, "demos_by")

    def balances(self, pool: PoolRows) -> bool:
        """Whether equal numbers of every label are chosen: as asked, or as the source does where the pool allows it."""
        if self.balanced is not None:
            return self.balanced
        try:
            return self.definition.balanced_by_default and bool(_shares(pool, self.shots))
        except InputError:
            return False


@dataclass(frozen=True)
class Cost:
    """The work of the model for a choice: rows and queries observed, sets of demonstrations read, inputs scored.

    `cached` counts rows and queries that were found in the cache; nothing else counts cached results.
    """

    observed: int = 0
    cached: int = 0
    sets: int = 0
    scored: int = 0


@dataclass(frozen=True, eq=False)
class Chosen:
    """The chosen rows of a pool: their places in reading order, and the record of the choice.

    `scores` are the method's scores by place; empty if it has none. `seconds` are those of the choice, without loading
    the model.
    """

    pool: PoolRows
    places: tuple[int, ...]
    scores: Mapping[int, float]
    selected: Selected
    cost: Cost
    seconds: float = 0.0

    @property
    def queries(self) -> list[Query]:
        """The chosen rows, in reading order."""
        return [self.pool.queries[place] for place in self.places]

    @property
    def demonstrations(self) -> DemonstrationSet:
        """The chosen rows as demonstrations, with the pool's template and label words."""
        return DemonstrationSet(tuple(map(example_of, self.queries)), self.pool.template, self.pool.labels)

    @property
    def labels(self) -> Counter[str]:
        """The number of chosen rows of each label, in the order of the label words."""
        counts = Counter(str(query.gold) for query in self.queries)
        return Counter({label: counts[label] for label in self.pool.labels or sorted(counts)})

    def rows(self) -> Iterator[dict[str, Any]]:
        """The chosen rows as they were read, in reading order."""
        for place in self.places:
            yield {name: jsonable(value) for name, value in self.pool.row(place).items()}

    def score_rows(self) -> Iterator[dict[str, Any]]:
        """Every row of the pool: its index, label and score, and its place in the choice, or why it was set aside.

        `score` is null if the method gives this row no score.
        """
        order = {place: number for number, place in enumerate(self.places)}
        for place, query in enumerate(self.pool.queries):
            yield {
                "index": place,
                "label": query.gold,
                "score": jsonable(self.scores.get(place)),
                "chosen": order.get(place),
                **({"set_aside": self.pool.set_aside[place]} if place in self.pool.set_aside else {}),
            }

    def as_json(self) -> dict[str, Any]:
        """The choice as JSON values."""
        return {
            **asdict(self.selected),
            "labels": dict(self.labels),
            "rows": list(self.places),
            "set_aside": dict(self.pool.reasons),
            "left_out": dict(self.pool.left_out),
            **asdict(self.cost),
            "seconds": self.seconds,
        }


def check_request(pool: PoolRows, request: Request) -> None:
    """Raise InputError unless the method can choose `shots` rows of the pool; needs no model."""
    method, rows = request.definition, Pool([pool.queries[place] for place in pool.free])
    if request.shots < 1:
        raise InputError.of("shots", request.shots, "a number of demonstrations, 1 or more")
    if request.shots > len(rows):
        aside = "".join(f"; {count} {reason}" for reason, count in pool.reasons.items())
        raise InputError.of("shots", request.shots, f"{pool.name} has {len(rows)} rows to choose from{aside}")
    if pool.labels and len(rows.by_label) < 2:
        raise InputError(f"{pool.name}: one label only, {next(iter(rows.by_label))!r}; add rows of another")
    if request.balanced and not pool.labels:
        raise InputError.of("balance", None, f"the rows of {pool.name} have candidates of their own; omit it")
    if request.balanced:
        _shares(pool, request.shots)
    if request.queries and "queries" not in method.reads:
        raise InputError.of("for", None, f"{option('demos_by')} {request.method} does not read the queries; omit it")
    if {"probabilities", "trials"} & set(method.reads) and len({query.candidates for query in rows.rows}) > 1:
        raise InputError.of(
            "demos_by",
            request.method,
            f"compares the labels' probabilities, and the rows of {pool.name} have candidates of their own; "
            "use a method that reads hidden states alone",
        )


def _shares(pool: PoolRows, shots: int) -> dict[str, int]:
    """The number of demonstrations of each label in a balanced choice; raises InputError as `Pool.shares`."""
    rows = Pool([pool.queries[place] for place in pool.free])
    if absent := [label for label in pool.labels if label not in rows.by_label]:
        problem = f"{pool.name} has no row with the label {absent[0]!r}; add some, or omit it"
        raise InputError.of("balance", None, problem)
    return rows.shares(shots) if pool.labels else {}


def choose_demonstrations(
    engine: Engine | None,
    pool: PoolRows,
    request: Request,
    store: Store | None = None,
    tell: Tell = silent,
) -> Chosen:
    """Choose rows of a pool; `engine` may be None for a method that reads nothing of the model.

    The rows must fit the model (`PoolRows.fitting`). Results are cached in `store`. `tell` is called as rows are read
    and sets are tried. Raises InputError as `check_request`, and raises as the method does.
    """
    check_request(pool, request)
    method, free = request.definition, pool.free
    if method.reads and engine is None:
        raise InputError.of("demos_by", request.method, f"reads the rows with a model; name one with {option('model')}")
    places = sorted(free) if method.in_file_order else free
    queries = [pool.queries[place] for place in places]
    rows = Pool(queries, balanced=request.balances(pool), groups=input_groups(queries, pool.template, pool.labels))
    cost = Cost()
    if engine is not None and set(method.reads) & {"hidden", "probabilities", "tokens"}:
        rows, cost = _observed(engine, pool, rows, request, store, tell)
    if engine is not None and method.trials is not None:
        made = loaded(method.trials)(engine, rows.rows, pool.template, pool.labels, request.chat, store, tell)
        rows = replace(rows, trials=made)
    choice = _choice(method, rows, request)
    if rows.trials is not None:
        cost = replace(cost, sets=rows.trials.sets_read, scored=rows.trials.inputs_scored)
    order = list(choice.rows)
    if not choice.ordered:
        random.Random(request.seed).shuffle(order)
    scores = {} if choice.scores is None else dict(zip(places, map(float, choice.scores), strict=True))
    return Chosen(
        pool=pool,
        places=tuple(places[row] for row in order),
        scores={place: score for place, score in scores.items() if not math.isnan(score)},
        selected=_selected(engine if method.reads else None, pool, request),
        cost=cost,
    )


def _observed(
    engine: Engine, pool: PoolRows, rows: Pool, request: Request, store: Store | None, tell: Tell
) -> tuple[Pool, Cost]:
    """The pool with the hidden states and probabilities of its rows and of the queries, and the cost."""
    everything = [*rows.rows, *request.queries]
    observe = Observer(engine, pool.template, everything, "tokens" in request.definition.reads, store)
    features = observe(rows.rows, tell)
    rows = replace(rows, hidden=features.hidden, probabilities=features.probabilities, tokens=features.tokens)
    read = features.read
    if request.queries:
        targets = observe(request.queries, tell)
        rows = replace(rows, target_hidden=targets.hidden, target_tokens=targets.tokens)
        read += targets.read
    return rows, Cost(read, len(everything) - read)


def _choice(method: SelectionMethod, rows: Pool, request: Request) -> Choice:
    """The method's choice; for a balanced choice by a method that does not balance, a choice for each label."""
    draw = random.Random(request.seed)
    if not rows.balanced or method.balances:
        return method(rows, request.shots, draw, request.own)
    import numpy as np

    chosen, scores, scored = list[int](), np.full(len(rows), np.nan), False
    for label, share in rows.shares(request.shots).items():
        numbers = rows.by_label[label]
        if share:
            choice = method(_part(rows, numbers), share, draw, request.own)
            chosen += [numbers[row] for row in choice.rows]
            if choice.scores is not None:
                scores[numbers], scored = choice.scores, True
    return Choice(chosen, scores if scored else None)


def _part(rows: Pool, numbers: Sequence[int]) -> Pool:
    """Some rows of a pool as a pool."""
    return replace(
        rows,
        rows=[rows.rows[number] for number in numbers],
        groups=rows.inputs[numbers].tolist(),
        hidden=None if rows.hidden is None else rows.hidden[numbers],
        probabilities=None if rows.probabilities is None else rows.probabilities[numbers],
        tokens=None if rows.tokens is None else [rows.tokens[number] for number in numbers],
    )


def _selected(engine: Engine | None, pool: PoolRows, request: Request) -> Selected:
    return Selected(
        method=request.method,
        shots=request.shots,
        seed=request.seed,
        balanced=request.balances(pool),
        options=dict(request.own) or None,
        pool=pool.name,
        pool_rows=len(pool.free),
        pool_sha256=pool.sha256,
        model=None if engine is None else engine.identity.id,
        model_sha256=None if engine is None else engine.identity.contents_sha256,
    )
