"""The splits of a task: where their rows are read from, and the choice of evaluated rows and demonstrations.

Rows come from a directory of files, or from the hub at a pinned revision; they are the same. Rows are chosen with a
seed, and no text is among both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from deepthink_cli.data.examples import DemonstrationSet, Example, Query, example_of
from deepthink_cli.data.formats.lines import refuse_texts
from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.same_input import input_keys, is_among, row_digest, rows_digest, same_rows
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import DeepThinkError, InputError, Problem, option
from deepthink_cli.io.hub import answers, forbidden_by, is_unreachable, quiet_libraries, unreachable
from deepthink_cli.selection.registry import Pool, selection_method
from deepthink_cli.tasks.format import PROTOCOLS, Split, Task, all_matches
from deepthink_cli.tasks.items import DoesNotFit, query_of

SUFFIXES = (".jsonl", ".parquet", ".csv", ".tsv")
FIXED_SEED = 0  # seed of protocol samples, --limit and dev sets


@dataclass(frozen=True)
class Source:
    """The source of rows: the `FOLDER/SPLIT.jsonl` files of `data_dir`, or the hub if it is None."""

    data_dir: Path | None = None
    offline: bool = False


def source_of(data_dir: Path | None, offline: bool) -> Source:
    """The source of task rows; raises InputError if the data directory does not exist."""
    if data_dir is not None and not data_dir.is_dir():
        raise InputError.of("data_dir", data_dir, "no such directory")
    return Source(data_dir, offline)


def split_rows(task: Task, split: str, source: Source) -> Iterator[Row]:
    """Yield the rows of one split, in its order, in the hub's columns; a split's own file takes precedence.

    Raises InputError or DeepThinkError, with a fix, if the split cannot be read.
    """
    definition = task.splits.get(split, Split())
    if definition.file is not None:
        file = RowSource(definition.file, definition.format, header=definition.header, quotes=definition.quotes)
        refuse_texts(file)
        if file.read_once:
            raise InputError(f"{file.path}: the rows of a task are read several times; give a file")
        return read_rows(file) if definition.half is None else _half(read_rows(file), definition.half)
    if source.data_dir is not None:
        return read_rows(str(_file(task, split, source.data_dir)))
    return _hub_rows(task, split, source)


def files_of(task: Task) -> list[str]:
    """The files on this machine that the task's definition names."""
    return list(dict.fromkeys(split.file for split in task.splits.values() if split.file is not None))


def _half(rows: Iterator[Row], half: int) -> Iterator[Row]:
    """One row of every two, drawn with a fixed seed, or the other row; more rows at the end change nothing."""
    draw, first = random.Random(0), False
    for number, row in enumerate(rows):
        if number % 2 == 0:
            first = draw.random() < 0.5
        if (number % 2 == 0) == (first == (half == 1)):
            yield row


def _file(task: Task, split: str, data_dir: Path) -> Path:
    folder = data_dir / task.folder
    for suffix in SUFFIXES:
        if (path := folder / f"{split}{suffix}").is_file():
            return path
    raise InputError.of(
        "data_dir",
        data_dir,
        f"task {task.name} needs {folder / split}.jsonl (rows in the hub's columns), which is missing; "
        f"add it, or omit {option('data_dir')} to use {_origin(task, split)}",
    )


def _hub_rows(task: Task, split: str, source: Source) -> Iterator[Row]:
    definition = task.splits.get(split, Split())
    if task.hub is None and definition.url is None:
        raise InputError(f"task {task.name}: its file names no hub data set; give {option('data_dir')}")
    origin = _origin(task, split)
    try:
        import datasets  # noqa: F401  imported before its settings are changed

        # A hub that does not answer is not asked again: the files in the cache are used.
        unanswered = definition.url is None and not forbidden_by(source.offline) and not answers()
        with quiet_libraries(source.offline or unanswered):
            rows = _loaded(task, split, definition)
    except Exception as error:  # the library raises many types, and the reason is in their message
        hint = f"give {option('data_dir')} DIR with DIR/{task.folder}/{split}.jsonl"
        if is_unreachable(error):
            raise unreachable(Problem(f"task {task.name}: {origin}"), source.offline, hint) from error
        reason = " ".join(str(error).split())[:200]
        raise DeepThinkError(
            f"task {task.name}: cannot load {origin}: {type(error).__name__}: {reason}; {hint}"
        ) from error
    for number, fields in enumerate(rows, start=1):
        yield Row(fields, f"{origin}:{number}")


def _loaded(task: Task, split: str, definition: Split) -> Any:
    from datasets import load_dataset

    if definition.url is not None and definition.pattern is not None:
        texts = load_dataset("text", data_files={split: definition.url}, split=split, sample_by="document")
        return matches(definition.pattern, "\n".join(texts["text"]))
    if definition.url is not None:
        return load_dataset("json", data_files={split: definition.url}, split=split, field=definition.field)
    assert task.hub is not None
    config = definition.config or task.hub.config
    return load_dataset(task.hub.path, config, split=definition.split or split, revision=task.hub.revision)


def matches(pattern: str, text: str) -> list[dict[str, str]]:
    """The matches of a pattern in a text as rows, with its named groups as columns."""
    return [
        {name: (value or "").strip() for name, value in match.groupdict().items()}
        for match in all_matches(pattern, text)
    ]


def _origin(task: Task, split: str) -> str:
    origin = task.splits.get(split, Split())
    if origin.url is not None:
        return origin.url
    if task.hub is None:
        return "no hub data set"
    config = origin.config or task.hub.config
    return f"{task.hub.path}{f' ({config})' if config else ''}, split {origin.split or split}"


@dataclass(frozen=True)
class EvaluationSet:
    """The evaluated rows of a split, read again by every iterator; `skipped` counts rows that do not fit.

    An iterator raises DeepThinkError after the last row if the rows have changed since the first read. `keys` identify
    all inputs of the split, evaluated or not (see `task_keys`); `rows_sha256` identifies the evaluated rows (see
    `rows_digest`); `pools` caches training rows for several seeds.
    """

    task: Task
    protocol: str
    split: str
    source: Source
    places: frozenset[int]
    keys: frozenset[bytes]
    rows_sha256: str
    skipped: Counter[str] = field(default_factory=Counter)
    pools: dict[str, tuple[list[Query], Counter[str]]] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, row: Query | Example) -> bool:
        """Whether the split has the input of a row."""
        return not self.keys.isdisjoint(task_keys(self.task, [row]))

    def __iter__(self) -> Iterator[Query]:
        queries = enumerate(_queries(self.task, self.split, self.source))
        evaluated = (query for place, query in queries if place in self.places and isinstance(query, Query))
        return same_rows(evaluated, self.rows_sha256, f"task {self.task.name}: its {self.split} rows")


@dataclass(frozen=True)
class Drawn:
    """Demonstrations in reading order, and the number of training rows omitted, by reason.

    `balanced` is whether a selection method chose equal numbers of every label; None if none chose.
    """

    demonstrations: DemonstrationSet
    left_out: Counter[str]
    balanced: bool | None = None


def evaluation_set(task: Task, protocol: str, source: Source, limit: int | None = None) -> EvaluationSet:
    """The rows that a protocol evaluates, or a seeded sample of `limit` rows, in the split's order.

    Raises InputError for a protocol that the task does not have, and if no row fits.
    """
    check_protocol(task, protocol)
    name = protocol_name(task, protocol)
    evaluated = task.protocols[name]
    skipped: Counter[str] = Counter()
    fitting, keys = dict[int, bytes](), set[bytes]()
    for place, query in enumerate(_queries(task, evaluated.split, source)):
        if isinstance(query, Query):
            fitting[place] = row_digest(query)
            keys |= task_keys(task, [query])
        else:
            skipped[query] += 1
    if not fitting:
        reasons = "; ".join(f"{count} rows: {reason}" for reason, count in skipped.items()) or "it is empty"
        raise InputError(f"task {task.name}: no row of split {evaluated.split} fits: {reasons}")
    places = sampled(sampled(list(fitting), evaluated.sample), limit)
    rows = rows_digest(fitting[place] for place in places)
    return EvaluationSet(task, name, evaluated.split, source, frozenset(places), frozenset(keys), rows, skipped)


def sampled(places: Sequence[int], most: int | None) -> Sequence[int]:
    """A fixed sample of at most `most` places, in order."""
    if most is None or most >= len(places):
        return places
    return sorted(random.Random(FIXED_SEED).sample(places, most))


def draw_demonstrations(
    task: Task,
    evaluated: EvaluationSet,
    shots: int | None = None,
    seed: int = 0,
    order_seed: int | None = None,
    sampling: str | None = None,
) -> Drawn:
    """Draw demonstrations from the task's training rows with a registered selection method, by default the task's.

    Rows whose text is also in the evaluated split are omitted and counted. `order_seed` permutes the drawn
    demonstrations. Raises InputError if there are fewer rows than `shots`, and for an unknown method.
    """
    pool, left_out = training_rows(task, task.demonstrations, evaluated)
    count = task.shots if shots is None else shots
    if count > len(pool):
        reason = f"task {task.name} has {len(pool)} rows for demonstrations; use at most {len(pool)}"
        raise InputError.of("shots", count, reason)
    choice = selection_method(sampling or task.sampling)(Pool(pool), count, random.Random(seed))
    chosen = [pool[row] for row in choice.rows]
    if order_seed is not None:
        chosen = random.Random(order_seed).sample(chosen, len(chosen))
    examples = tuple(map(example_of, chosen))
    return Drawn(DemonstrationSet(examples, task.prompt, tuple(task.labels or ())), left_out)


def dev_set(task: Task, evaluated: EvaluationSet, drawn: Drawn, size: int | None = None) -> list[Query]:
    """Training rows for the choice of T and eta: `size` rows, or as many as test rows; drawn with a fixed seed.

    Demonstrations, and rows that are also in the evaluated split, are omitted. Raises InputError if the task has no
    training rows beyond its demonstrations.
    """
    queries, _ = training_rows(task, task.dev or task.demonstrations, evaluated)
    order = random.Random(FIXED_SEED).sample(queries, len(queries))
    was_read = is_among(drawn.demonstrations.examples, task.prompt, task.labels or ())
    unread = (query for query in order if not was_read(query))
    rows = list(islice(unread, size or len(evaluated)))
    if not rows:
        reason = f"task {task.name} has no training rows beyond its demonstrations; omit it from this run"
        raise InputError.of("choose_on", "dev", reason)
    return rows


def task_keys(task: Task, rows: Iterable[Query | Example]) -> frozenset[bytes]:
    """Keys of inputs of a task; two rows are the same input if they have a key in common (see `input_keys`)."""
    template, labels = task.prompt, task.labels or ()
    return frozenset(key for row in rows for key in input_keys(row, template, labels))


def check_protocol(task: Task, protocol: str) -> None:
    """Raise InputError for a protocol that neither the task nor any built-in task has."""
    if protocol not in (*PROTOCOLS, *task.protocols):
        raise InputError.of("protocol", protocol, f"use {' or '.join(dict.fromkeys((*PROTOCOLS, *task.protocols)))}")


def protocol_name(task: Task, protocol: str) -> str:
    """The protocol that is evaluated: the requested one, or the task's first if the task lacks it."""
    return protocol if protocol in task.protocols else next(iter(task.protocols))


def _queries(task: Task, split: str, source: Source, any_number: bool = False) -> Iterator[Query | str]:
    """Every row of a split as a query, or the reason why it does not fit."""
    for row in split_rows(task, split, source):
        try:
            yield query_of(task, row, any_number)
        except DoesNotFit as reason:
            yield str(reason)


def training_rows(task: Task, split: str, evaluated: EvaluationSet) -> tuple[list[Query], Counter[str]]:
    """The rows of a split that may be demonstrations or dev rows, and the counts of other rows by reason; cached."""
    if split in evaluated.pools:
        return evaluated.pools[split]
    pool: list[Query] = []
    left_out: Counter[str] = Counter()
    for query in _queries(task, split, evaluated.source, any_number=True):
        if not isinstance(query, Query):
            left_out[query] += 1
        elif query in evaluated:
            left_out[f"also in {evaluated.split}"] += 1
        else:
            pool.append(replace(query, fields=None))
    evaluated.pools[split] = pool, left_out
    return pool, left_out
