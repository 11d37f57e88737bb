"""`deepthink select`: choose demonstrations from a pool of labelled rows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, counted, note, write_json
from deepthink_cli.cli.data_options import LABELLED_ROWS, DataDir, PromptArguments, ProtocolName, RowArguments, TaskName
from deepthink_cli.cli.grouped import Given, Help, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.pools import pool_rows
from deepthink_cli.cli.sources import csv_line
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.data.examples import Query, read_queries
from deepthink_cli.data.source import STDIN, RowSource
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.io.tables import Columns, check_suffix, is_table, writing_rows
from deepthink_cli.io.text import json_line, jsonable
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import DATA, OUTPUT, Flag, Joined, Options, joined, own_options
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.registry import METHODS, selection_method

if TYPE_CHECKING:
    from deepthink_cli.events import Tell
    from deepthink_cli.selection.choice import Chosen
    from deepthink_cli.selection.pool import PoolRows

STDOUT = Path("-")
_SCORES: Columns = {"index": "integer", "label": "text", "score": "number", "chosen": "integer", "set_aside": "text"}

PoolFile = Annotated[
    str | None,
    typer.Argument(
        metavar="POOL",
        help=f"Labelled rows: {LABELLED_ROWS}; - for stdin. Default with --task: the task's training rows.",
    ),
]
Queries = Annotated[
    str | None,
    Flag(
        DATA,
        "Choose for these queries; only for methods that read them. Labels in the file are not read.",
        "QUERIES",
        name="for",
        variable=False,
    ),
]


class SelectArguments(Options):
    """The task whose rows are the pool, and the files that are written."""

    output: Annotated[
        Path,
        Flag(
            OUTPUT,
            "Output file of the demonstrations; the suffix decides the format, as for predict -o; - for stdout.",
            "FILE",
            short="-o",
            variable=False,
        ),
    ] = Path("demos.jsonl")
    pool_scores: Annotated[
        Path | None,
        Flag(
            OUTPUT,
            "Write a row for every row of the pool; the suffix decides the format, as for predict -o.",
            "FILE",
            variable=False,
        ),
    ] = None
    task: TaskName = None
    protocol: ProtocolName = "official"
    data_dir: DataDir = None


_OWN = {f"--demos-by {name}": method.options for name, method in METHODS.items()}
if TYPE_CHECKING:
    MethodOptions = Joined
else:
    MethodOptions = joined("MethodOptions", _OWN)
# Without a model, none is opened: no row is then too long for it.
_MODEL = (
    "Hub id, local directory, GGUF file, or pocket, the built-in toy model. Default: none; only methods that read the "
    "rows with a model need one."
)


@about(
    "select pool.jsonl -m gpt2 --demos-by herding --shots 16 -o demos.jsonl",
    first="demos_by shots seed queries output model template task",
)
@grouped
def select(
    context: typer.Context,
    pool: PoolFile = None,
    *,
    choice: Given[SelectOptions],
    own: Given[MethodOptions],
    asked: SelectArguments,
    queries: Queries = None,
    model: Annotated[Given[ModelOptions], Help(model=_MODEL)],
    reading: RowArguments,
    prompt: PromptArguments,
    common: CommonArguments,
) -> None:
    """Choose demonstrations from a pool of labelled rows."""
    from deepthink_cli.io.cache import Store
    from deepthink_cli.selection.choice import select as choose
    from deepthink_cli.selection.choice import write_selection
    from deepthink_cli.tasks.sources import source_of

    problems = Problems()
    problems.tried(check_given, context, "select")
    paths: dict[str, Any] = {"model": model.model, "template": prompt.template, "labels": prompt.labels}
    paths |= {"task": asked.task, "data_dir": asked.data_dir, "config": common.config}
    problems.tried(_check_outputs, asked, common.as_json, [pool, queries], paths)
    model_options = problems.tried(model.checked)
    options = problems.tried(_options, choice, own, asked.task)
    source = problems.tried(source_of, asked.data_dir, model.offline)
    sources = problems.tried(_sources, pool, queries, reading, prompt.labels, Show(common))
    problems.raise_any()
    pool_source, query_source = sources
    with Show(common, bar=not common.as_json) as tell:
        rows_of_pool = pool_rows(pool_source, asked.task, asked.protocol, source, prompt, tell)
        check_output_holds(rows_of_pool, asked.output)
        targets = [] if query_source is None else queries_of_file(query_source, rows_of_pool)
        named = None if model.model is None else model_options
        result = choose(rows_of_pool, options, named, targets, Store(), tell)
    if asked.pool_scores is not None:
        write_scores(result, asked.pool_scores)
    if asked.output == STDOUT:
        sys.stdout.writelines(map(json_line, result.rows()))
        sys.stdout.flush()
    else:
        write_selection(result, asked.output)
    _report(result, asked.output, _next(asked, prompt, model, result), common)


def _check_outputs(asked: SelectArguments, json: bool, read: list[str | None], paths: dict[str, Any]) -> None:
    """Raise InputError if an output would overwrite an input or another output."""
    from deepthink_cli.outputs import check_apart

    output, scores = asked.output, asked.pool_scores
    if read == ["-", "-"]:
        raise InputError.of("for", "-", "POOL is standard input, too; give a file")
    if output == STDOUT and json:
        raise InputError.of("json", None, "standard output has the demonstrations; name a file with -o")
    inputs = read_by(*read, **paths)
    if output != STDOUT:
        check_apart(output, inputs)
        check_suffix(output)
    if scores is not None:
        if str(scores) == "-":
            raise InputError.of("pool_scores", "-", "standard output is for the demonstrations; name a file")
        check_apart(scores, inputs, "pool_scores")
        check_suffix(scores, "pool_scores")
        if scores.resolve() == output.resolve():
            raise InputError.of("pool_scores", scores, "the demonstrations are written there; name another file")


def _sources(
    pool: str | None, queries: str | None, reading: RowArguments, labels: str | None, tell: Tell
) -> tuple[RowSource | None, RowSource | None]:
    """The rows of the pool and the queries; the format is for the pool, if it is a file, and for stdin."""
    of_queries = RowArguments()
    if queries is not None and (pool is None or queries == STDIN):
        of_queries = RowArguments(format=reading.format)
        reading = reading if pool else reading.model_copy(update={"format": None})
    return reading.source(pool, labels, tell), of_queries.source(queries, None, tell)


def _options(choice: Given[SelectOptions], own: Given[MethodOptions], task: str | None) -> SelectOptions:
    from deepthink_cli.tasks.catalogue import find_task

    if choice.demos_by is None:
        raise InputError.of(
            "demos_by", None, "no method; give random, or another one that deepthink list selections shows"
        )
    shots = choice.shots
    if shots is None and task is not None:
        shots = str(find_task(task).shots)
    if shots is None:
        raise InputError.of("shots", None, "no number of rows to choose; give one, as in --shots 16")
    method = selection_method(choice.demos_by, "demos_by")
    of_method = own_options(method.options, own.changed, f"--demos-by {choice.demos_by}", _OWN)
    return choice.but(shots=shots).checked(own={} if of_method is None else of_method.model_dump())


def _next(asked: SelectArguments, prompt: PromptArguments, model: Given[ModelOptions], chosen: Chosen) -> str:
    """The command that makes a memory of the demonstrations, with the same prompts and labels."""
    words = ["deepthink", "think", str(asked.output)]
    if model.model is not None:
        words += ["-m", model.model]
    if asked.task is not None:
        return shlex.join([*words, "--task", asked.task])
    for name, value in prompt.model_dump().items():
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            words += [f"--{name.replace('_', '-')}", each]
    if prompt.labels is None and not all(chosen.labels.values()):
        words += ["--labels", csv_line(chosen.pool.labels)]
    return shlex.join(words)


def _report(chosen: Chosen, output: Path, following: str, common: CommonArguments) -> None:
    if common.as_json:
        write_json({**chosen.as_json(), "file": str(output)})
    labels = ", ".join(counted(count, label) for label, count in chosen.labels.items())
    work = [f"read {chosen.observed:,} rows"] if chosen.observed else []
    work += [f"took {chosen.cached:,} rows from the cache"] if chosen.cached else []
    work += [f"tried {chosen.sets:,} sets on {chosen.scored:,} inputs"] if chosen.scored else []
    lines = [f"chose   {chosen.selected}", f"labels  {labels}"]
    lines += [f"{', '.join(work)} in {chosen.seconds:.1f} s"] if work else []
    if output != STDOUT:
        lines += [f"wrote {output} ({len(chosen.places)} rows)", f"next: {following}"]
    for line in lines:
        note(line, common.quiet)


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
