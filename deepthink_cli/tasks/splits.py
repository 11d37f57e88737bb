"""Choose the evaluated rows and the demonstrations, with a seed; no text is in both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from deepthink_cli.data.examples import DemonstrationSet, Example, Query, example_of
from deepthink_cli.data.same_input import input_keys, is_among, row_digest, rows_digest, same_rows
from deepthink_cli.errors import InputError
from deepthink_cli.selection.registry import Pool, selection_method
from deepthink_cli.tasks.format import PROTOCOLS, Task
from deepthink_cli.tasks.items import DoesNotFit, query_of
from deepthink_cli.tasks.sources import Source, split_rows

FIXED_SEED = 0  # seed of protocol samples, --limit and dev sets


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
