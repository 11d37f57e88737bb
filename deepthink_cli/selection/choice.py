"""Choose demonstrations from a pool with a registered method, record the choice, and write it to files."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deepthink_cli.data.examples import DemonstrationSet, Query, example_of
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.data.template import Chat
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.tables import columns_of, writing_rows
from deepthink_cli.io.text import jsonable
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.provenance import Selected
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import TOO_LONG, PoolRows, fits
from deepthink_cli.selection.registry import READERS, Choice, Pool, SelectionMethod


@dataclass(frozen=True, eq=False)
class Chosen:
    """The chosen rows of a pool: their places in reading order, and the record of the choice.

    `scores` are the method's scores by place; empty if it has none. The model `observed` rows and queries, read `sets`
    of demonstrations and `scored` inputs; rows and queries that came from the cache are counted as `cached` alone.
    `seconds` are those of the choice, without loading the model.
    """

    pool: PoolRows
    places: tuple[int, ...]
    scores: Mapping[int, float]
    selected: Selected
    observed: int = 0
    cached: int = 0
    sets: int = 0
    scored: int = 0
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

    def as_json(self) -> dict[str, Any]:
        """The choice as JSON values."""
        return {
            **asdict(self.selected),
            "labels": dict(self.labels),
            "rows": list(self.places),
            "set_aside": dict(self.pool.reasons),
            "left_out": dict(self.pool.left_out),
            **{name: getattr(self, name) for name in ("observed", "cached", "sets", "scored", "seconds")},
        }


def check_choice(pool: PoolRows, options: SelectOptions, queries: Sequence[Query] = ()) -> None:
    """Raise InputError unless the method can choose so many rows of the pool, for these queries; needs no model."""
    method, rows = options.method, Pool([pool.queries[place] for place in pool.free])
    if options.shots > len(rows):
        aside = "".join(f"; {count} {reason}" for reason, count in pool.reasons.items())
        raise InputError.of("shots", options.shots, f"{pool.name} has {len(rows)} rows to choose from{aside}")
    if pool.labels and len(rows.by_label) < 2:
        raise InputError(f"{pool.name}: one label only, {next(iter(rows.by_label))!r}; add rows of another")
    if options.balance and not pool.labels:
        raise InputError.of("balance", None, f"the rows of {pool.name} have candidates of their own; omit it")
    if options.balance:
        _check_shares(pool, options.shots)
    if queries and "queries" not in method.reads:
        raise InputError.of("for", None, f"{option('demos_by')} {options.demos_by} does not read the queries; omit it")
    if {"probabilities", "trials"} & set(method.reads) and len({query.candidates for query in rows.rows}) > 1:
        raise InputError.of(
            "demos_by",
            options.demos_by,
            f"compares the labels' probabilities, and the rows of {pool.name} have candidates of their own; "
            "use a method that reads hidden states alone",
        )


def _balances(pool: PoolRows, options: SelectOptions) -> bool:
    """Whether equal numbers of every label are chosen: as asked, or as the source does where the pool allows it."""
    if options.balance is not None or not options.method.balanced_by_default or not pool.labels:
        return bool(options.balance)
    try:
        _check_shares(pool, options.shots)
    except InputError:
        return False
    return True


def _check_shares(pool: PoolRows, shots: int) -> None:
    """Raise InputError, also as `Pool.shares`, unless the pool allows a balanced choice."""
    rows = Pool([pool.queries[place] for place in pool.free])
    if absent := [label for label in pool.labels if label not in rows.by_label]:
        problem = f"{pool.name} has no row with the label {absent[0]!r}; add some, or omit it"
        raise InputError.of("balance", None, problem)
    rows.shares(shots)


def choose_demonstrations(
    engine: Engine | None,
    pool: PoolRows,
    options: SelectOptions,
    store: Store | None = None,
    tell: Tell = silent,
    queries: Sequence[Query] = (),
    chat: Chat | None = None,
) -> Chosen:
    """Choose rows of a pool, for queries if the method reads them; `engine` may be None for a method without a model.

    The rows must fit the model (`PoolRows.fitting`). Sets are tried in the conversation of a `chat`; hidden states and
    probabilities are from the plain template. Results are cached in `store`. `tell` is called as rows are read and sets
    are tried. Raises InputError as `check_choice`, and raises as the method does.
    """
    check_choice(pool, options, queries)
    method, free = options.method, pool.free
    if method.reads and engine is None:
        reason = f"reads the rows with a model; name one with {option('model')}, as in {option('model')} gpt2"
        raise InputError.of("demos_by", options.demos_by, reason)
    places = sorted(free) if method.in_file_order else free
    rows_read = [pool.queries[place] for place in places]
    balanced = _balances(pool, options)
    rows = Pool(rows_read, balanced=balanced, groups=input_groups(rows_read, pool.template, pool.labels))
    if engine is not None:
        for read in dict.fromkeys(READERS[part] for part in method.reads if part in READERS):
            rows = read(engine, pool, rows, method.reads, queries, chat, store, tell)
    choice = _choice(method, rows, options)
    order = list(choice.rows)
    if not choice.ordered:
        random.Random(options.seed).shuffle(order)
    scores = {} if choice.scores is None else dict(zip(places, map(float, choice.scores), strict=True))
    identity = None if engine is None or not method.reads else engine.identity
    return Chosen(
        pool=pool,
        places=tuple(places[row] for row in order),
        scores={place: score for place, score in scores.items() if not math.isnan(score)},
        selected=Selected(
            method=options.demos_by,
            shots=options.shots,
            seed=options.seed,
            balanced=balanced,
            options=dict(options.own) or None,
            pool=pool.name,
            pool_rows=len(free),
            pool_sha256=pool.sha256,
            model=None if identity is None else identity.id,
            model_sha256=None if identity is None else identity.contents_sha256,
        ),
        observed=rows.observed,
        cached=rows.cached,
        sets=0 if rows.trials is None else rows.trials.sets_read,
        scored=0 if rows.trials is None else rows.trials.inputs_scored,
    )


def _choice(method: SelectionMethod, rows: Pool, options: SelectOptions) -> Choice:
    """The method's choice; for a balanced choice by a method that does not balance, a choice for each label."""
    draw = random.Random(options.seed)
    if not rows.balanced or method.balances:
        return method(rows, options.shots, draw, options.own)
    import numpy as np

    chosen, scores, scored = list[int](), np.full(len(rows), np.nan), False
    for label, share in rows.shares(options.shots).items():
        numbers = rows.by_label[label]
        if share:
            part = replace(
                rows,
                rows=[rows.rows[number] for number in numbers],
                groups=rows.inputs[numbers].tolist(),
                hidden=None if rows.hidden is None else rows.hidden[numbers],
                probabilities=None if rows.probabilities is None else rows.probabilities[numbers],
                tokens=None if rows.tokens is None else [rows.tokens[number] for number in numbers],
            )
            choice = method(part, share, draw, options.own)
            chosen += [numbers[row] for row in choice.rows]
            if choice.scores is not None:
                scores[numbers], scored = choice.scores, True
    return Choice(chosen, scores if scored else None)


def select(
    pool: PoolRows,
    options: SelectOptions,
    model: ModelOptions | None = None,
    queries: Sequence[Query] = (),
    store: Store | None = None,
    tell: Tell = silent,
) -> Chosen:
    """Choose demonstrations from a pool, for queries if the method reads them.

    With a model, rows that do not fit it are set aside; weights are loaded only for a method that reads rows with a
    model. Results are cached in `store`. Raises InputError for a method, a number of shots or queries that the pool
    does not allow, before any weights are loaded.
    """
    spec = None if model is None else find_model(model, tell)
    if spec is not None:
        pool = pool.fitting(spec.tokenizer, spec.limits)
        fit, count = fits(spec.tokenizer, spec.limits, pool.template), len(queries)
        queries = [query for query in queries if fit(query)]
        _tell_of({TOO_LONG: count - len(queries)}, option("for"), tell)
        if count and not queries:
            raise InputError.of("for", None, f"no query fits {spec.id}; give shorter ones")
    _tell_of({**pool.left_out, **pool.reasons}, pool.name, tell)
    pool = pool.sampled(options.pool_size, options.seed)
    check_choice(pool, options, queries)
    engine = load(spec, tell) if spec is not None and options.method.reads else None
    started = time.perf_counter()
    chosen = choose_demonstrations(engine, pool, options, store, tell, queries)
    chosen = replace(chosen, seconds=time.perf_counter() - started)
    if missing := [label for label, count in chosen.labels.items() if not count]:
        way = (
            f"give all to deepthink think {option('labels')} (a {option('task')} has its own), or use "
            f"{option('balance')}"
        )
        tell(Warn(f"no row with the label {' or '.join(missing)} was chosen: {way}"))
    return chosen


def write_selection(chosen: Chosen, output: str | Path) -> None:
    """Write the chosen rows to a file."""
    rows = list(chosen.rows())
    with writing_rows(output, columns_of(rows)) as write:
        write(rows)


def _tell_of(counts: Mapping[str, int], name: str, tell: Tell) -> None:
    for reason, count in counts.items():
        if count:
            tell(Note(f"{name}: {count} {'row' if count == 1 else 'rows'} left out: {reason}"))
