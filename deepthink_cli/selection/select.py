"""Choose demonstrations from a pool, and write them to a file."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deepthink_cli.data.examples import DemonstrationSet, Query, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.opening import describe_engine, find_model, load
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.tables import Columns, check_suffix, columns_of, is_table, writing_rows
from deepthink_cli.io.text import jsonable
from deepthink_cli.model.limits import check_fit
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.selection.choice import Chosen, Request, check_request, choose_demonstrations
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import TOO_LONG, PoolRows, fits

_SCORES: Columns = {"index": "integer", "label": "text", "score": "number", "chosen": "integer", "set_aside": "text"}


@dataclass(frozen=True, eq=False)
class SelectResult:
    """Chosen demonstrations, and the seconds that the choice took without loading the model."""

    chosen: Chosen
    seconds: float

    @property
    def demonstrations(self) -> DemonstrationSet:
        """The chosen rows as demonstrations, with the pool's template and label words."""
        return self.chosen.demonstrations

    def rows(self) -> Iterator[dict[str, Any]]:
        """The chosen rows as they were read, in reading order."""
        for place in self.chosen.places:
            yield {name: jsonable(value) for name, value in self.chosen.pool.row(place).items()}

    def score_rows(self) -> Iterator[dict[str, Any]]:
        """Every row of the pool: its index, label and score, and its place in the choice, or why it was set aside.

        `score` is null if the method gives this row no score.
        """
        pool, order = self.chosen.pool, {place: number for number, place in enumerate(self.chosen.places)}
        for place, query in enumerate(pool.queries):
            score = self.chosen.scores.get(place)
            yield {
                "index": place,
                "label": query.gold,
                "score": score if score is None or math.isfinite(score) else None,
                "chosen": order.get(place),
                **({"set_aside": pool.set_aside[place]} if place in pool.set_aside else {}),
            }

    def as_json(self) -> dict[str, Any]:
        """The choice as JSON values."""
        chosen = self.chosen
        return {
            **asdict(chosen.selected),
            "labels": dict(chosen.labels),
            "rows": list(chosen.places),
            "set_aside": dict(chosen.pool.reasons),
            "left_out": dict(chosen.pool.left_out),
            **asdict(chosen.cost),
            "seconds": self.seconds,
        }


def select(
    pool: PoolRows,
    options: SelectOptions,
    model: ModelOptions | None = None,
    queries: Sequence[Query] = (),
    store: Store | None = None,
    tell: Tell = silent,
) -> SelectResult:
    """Choose demonstrations from a pool, for queries if the method reads them.

    With a model, rows that do not fit it are set aside; weights are loaded only for a method that reads rows with a
    model. Results are cached in `store`. Raises InputError for a method, a number of shots or queries that the pool
    does not allow, before any weights are loaded.
    """
    request = Request(options.demos_by, options.shots, options.seed, options.balance, queries, own=options.own)
    if request.definition.reads and model is None:
        raise InputError.of(
            "demos_by",
            options.demos_by,
            f"reads the rows with a model; name one with {option('model')}, as in {option('model')} gpt2",
        )
    spec = None if model is None else find_model(model, tell)
    if spec is not None:
        pool = pool.fitting(spec.tokenizer, spec.limits)
        request = replace(request, queries=_fitting(spec, pool, queries, tell))
    _tell_of({**pool.left_out, **pool.reasons}, pool.name, tell)
    pool = pool.sampled(options.pool_size, options.seed)
    check_request(pool, request)
    engine = load(spec, tell) if spec is not None and request.definition.reads else None
    if engine is not None:
        describe_engine(engine, tell)
    started = time.perf_counter()
    chosen = choose_demonstrations(engine, pool, request, store, tell)
    seconds = time.perf_counter() - started
    _check_chosen(chosen, spec, tell)
    return SelectResult(chosen, seconds)


def queries_of_file(source: str | RowSource, pool: PoolRows) -> list[Query]:
    """The queries of a file, for which demonstrations are chosen; its labels are not read.

    Raises InputError for queries that the pool's task evaluates, and for rows without the template's fields.
    """
    queries = list(read_queries(source, pool.template, pool.labels))
    if pool.check_queries is not None:
        pool.check_queries((f"{option('for')} {query.where}", query) for query in queries)
    return queries


def write_selection(result: SelectResult, output: str | Path) -> None:
    """Write the chosen rows to a file."""
    rows = list(result.rows())
    with writing_rows(output, columns_of(rows)) as write:
        write(rows)


def write_scores(result: SelectResult, path: str | Path) -> None:
    """Write a row for every row of the pool (`SelectResult.score_rows`); the suffix decides the format."""
    with writing_rows(path, _SCORES, "pool_scores") as write:
        write(result.score_rows())


def check_output_holds(pool: PoolRows, output: str | Path) -> None:
    """Raise InputError for an output of unknown format, and for a table if rows of the pool hold lists."""
    check_suffix(output)
    for place in range(len(pool.queries)) if is_table(output) else ():
        for name, value in pool.row(place).items():
            if isinstance(value, list | dict):
                raise InputError.of("output", output, f"{name!r} holds a list, which no table does; write .jsonl")


def _fitting(spec: ModelSpec, pool: PoolRows, queries: Sequence[Query], tell: Tell) -> list[Query]:
    """The queries that fit the model; raises InputError if none of them fits."""
    fit = fits(spec.tokenizer, spec.limits, pool.template)
    fitting = [query for query in queries if fit(query)]
    _tell_of({TOO_LONG: len(queries) - len(fitting)}, option("for"), tell)
    if queries and not fitting:
        raise InputError.of("for", None, f"no query fits {spec.id}; give shorter ones")
    return fitting


def _tell_of(counts: Mapping[str, int], name: str, tell: Tell) -> None:
    for reason, count in counts.items():
        if count:
            tell(Note(f"{name}: {count} {'row' if count == 1 else 'rows'} left out: {reason}"))


def _check_chosen(chosen: Chosen, spec: ModelSpec | None, tell: Tell) -> None:
    """Warn if the chosen rows do not fit the model together, or if a label is missing."""
    missing = [label for label, count in chosen.labels.items() if not count]
    if missing:
        way = (
            f"give all to deepthink think {option('labels')} (a {option('task')} has its own), or use "
            f"{option('balance')}"
        )
        tell(Warn(f"no row with the label {' or '.join(missing)} was chosen: {way}"))
    if spec is not None:
        try:
            check_fit(spec.limits, spec.tokenizer, chosen.demonstrations, 1, "continued", spec.id)
        except InputError as error:
            tell(Warn(error.messages[0]))
