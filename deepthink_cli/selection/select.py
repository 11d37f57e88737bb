"""Choose demonstrations from a pool, and write them to a file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from deepthink_cli.data.examples import Query, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.io.tables import Columns, check_suffix, columns_of, is_table, writing_rows
from deepthink_cli.model.limits import check_fit
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.selection.choice import Chosen, Request, check_request, choose_demonstrations
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import TOO_LONG, PoolRows, fits

_SCORES: Columns = {"index": "integer", "label": "text", "score": "number", "chosen": "integer", "set_aside": "text"}


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
    request = Request(options.demos_by, options.shots, options.seed, options.balance, queries, own=options.own)
    if request.definition.reads and model is None:
        reason = f"reads the rows with a model; name one with {option('model')}, as in {option('model')} gpt2"
        raise InputError.of("demos_by", options.demos_by, reason)
    spec = None if model is None else find_model(model, tell)
    if spec is not None:
        pool = pool.fitting(spec.tokenizer, spec.limits)
        request = replace(request, queries=_fitting(spec, pool, queries, tell))
    _tell_of({**pool.left_out, **pool.reasons}, pool.name, tell)
    pool = pool.sampled(options.pool_size, options.seed)
    check_request(pool, request)
    engine = load(spec, tell) if spec is not None and request.definition.reads else None
    started = time.perf_counter()
    chosen = choose_demonstrations(engine, pool, request, store, tell)
    chosen = replace(chosen, seconds=time.perf_counter() - started)
    _check_chosen(chosen, spec, tell)
    return chosen


def queries_of_file(source: str | RowSource, pool: PoolRows) -> list[Query]:
    """The queries of a file, for which demonstrations are chosen; its labels are not read.

    Raises InputError for queries that the pool's task evaluates, and for rows without the template's fields.
    """
    queries = list(read_queries(source, pool.template, pool.labels))
    if pool.check_queries is not None:
        pool.check_queries((f"{option('for')} {query.where}", query) for query in queries)
    return queries


def write_selection(chosen: Chosen, output: str | Path) -> None:
    """Write the chosen rows to a file."""
    rows = list(chosen.rows())
    with writing_rows(output, columns_of(rows)) as write:
        write(rows)


def write_scores(chosen: Chosen, path: str | Path) -> None:
    """Write a row for every row of the pool (`Chosen.score_rows`); the suffix decides the format."""
    with writing_rows(path, _SCORES, "pool_scores") as write:
        write(chosen.score_rows())


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
