"""The files of `deepthink select` beside the chosen rows: queries, and a row for every row of the pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepthink_cli.data.examples import Query, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.tables import Columns, check_suffix, is_table, writing_rows
from deepthink_cli.io.text import jsonable
from deepthink_cli.selection.choice import Chosen
from deepthink_cli.selection.pool import PoolRows

_SCORES: Columns = {"index": "integer", "label": "text", "score": "number", "chosen": "integer", "set_aside": "text"}


def queries_of_file(source: str | RowSource, pool: PoolRows) -> list[Query]:
    """The queries of a file, for which demonstrations are chosen; its labels are not read.

    Raises InputError for queries that the pool's task evaluates, and for rows without the template's fields.
    """
    queries = list(read_queries(source, pool.template, pool.labels))
    if pool.check_queries is not None:
        pool.check_queries((f"{option('for')} {query.where}", query) for query in queries)
    return queries


def write_scores(chosen: Chosen, path: str | Path) -> None:
    """Write a row for every row of the pool; the suffix decides the format."""
    with writing_rows(path, _SCORES, "pool_scores") as write:
        write(_score_rows(chosen))


def _score_rows(chosen: Chosen) -> Iterator[dict[str, Any]]:
    """Every row of the pool: its index, label and score, and its place in the choice, or why it was set aside.

    `score` is null if the method gives this row no score.
    """
    order, set_aside = {place: number for number, place in enumerate(chosen.places)}, chosen.pool.set_aside
    for place, query in enumerate(chosen.pool.queries):
        yield {
            "index": place,
            "label": query.gold,
            "score": jsonable(chosen.scores.get(place)),
            "chosen": order.get(place),
            **({"set_aside": set_aside[place]} if place in set_aside else {}),
        }


def check_output_holds(pool: PoolRows, output: str | Path) -> None:
    """Raise InputError for an output of unknown format, and for a table if rows of the pool hold lists."""
    check_suffix(output)
    for place in range(len(pool.queries)) if is_table(output) else ():
        for name, value in pool.row(place).items():
            if isinstance(value, list | dict):
                raise InputError.of("output", output, f"{name!r} holds a list, which no table does; write .jsonl")
