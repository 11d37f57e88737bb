"""One cell of the speed table: several systems that score the same inputs, in turns, and whether they agree.

Round 1 of every system, then round 2 of every system, so that a slow minute of the machine hits all alike. The
best round counts. A system with several batch sizes tries all in its first round and keeps the fastest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deepthink_cli import Engine, Method, score, think
from deepthink_cli.data.template import Template
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.opening import choose_engine
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import TokenizedDemonstrations
from floor import products_of
from harness import Harness
from official_way import official_scores
from shapes import random_memory

HARNESS, OFFICIAL, PADDED, DEEPTHINK, NO_MEMORY, PRODUCTS = SYSTEMS = (
    "harness",
    "official",
    "padded",
    "deepthink",
    "no-memory",
    "products",
)
HARNESS_BATCHES = (1, 8, 16)
OFFICIAL_BATCHES = (8, 16)
COLUMNS = (
    "shape",
    "L",
    "c",
    "engine",
    HARNESS,
    "harness inputs",
    "scaled by",
    "harness batch",
    OFFICIAL,
    "official batch",
    PADDED,
    DEEPTHINK,
    NO_MEMORY,
    PRODUCTS,
    "reading",
    "difference",
    "same label",
)
RATIOS = (
    f"{HARNESS} / {DEEPTHINK}",
    f"{OFFICIAL} / {DEEPTHINK}",
    f"{DEEPTHINK} / {NO_MEMORY}",
    f"{PRODUCTS} / {DEEPTHINK}",
)
Sums = list[list[float]]


@dataclass(frozen=True)
class Rounds:
    """How often each system runs, and how many inputs the harness scores.

    `harness_tries` is the number of inputs used to choose its batch size; None: all that it scores.
    """

    all: int = 5
    official: int = 2
    harness: int = 2
    harness_inputs: int = 8
    harness_tries: int | None = None


@dataclass(frozen=True)
class Work:
    """What a cell scores: inputs after a memory that is the plain reading of `ids` [L].

    `width` is what the official way pads its rows to, where it is more than the longest of these inputs.
    """

    engine: BatchedEngine
    ids: tuple[int, ...]
    memory: Memory
    queries: Sequence[TokenizedQuery]
    width: int | None = None


Ways = dict[int, Callable[[], tuple[float, Sums]]]  # by batch size, each returning its seconds and scores


@dataclass
class System:
    """A way to score; with `tries`, the first round uses the batch size that is fastest in them."""

    rounds: int
    ways: Ways
    inputs: int
    tries: Ways = field(default_factory=dict)
    best: float = float("inf")
    batch: int = 0
    scores: Sums = field(default_factory=list)

    def run(self, number: int) -> None:
        """One round."""
        if self.tries and number == 0:
            self.batch = min(self.tries, key=lambda batch: self.tries[batch]()[0])
        for batch in list(self.ways) if number == 0 and not self.tries else [self.batch]:
            seconds, self.scores = self.ways[batch]()
            if seconds < self.best:
                self.best, self.batch = seconds, batch


def read_work(engine: Engine, ids: Sequence[int]) -> tuple[Memory, float]:
    """The memory of the first reading and the seconds it took, the better of two; none at all for no ids."""
    if not ids:
        return random_memory(engine, 0), 0.0
    given, timings = TokenizedDemonstrations((), Template("{text} {label}"), (), token_ids=tuple(ids)), []
    for _ in range(2):
        started = time.perf_counter()
        memory = next(think(engine, given, Method(iterations=1)))
        timings.append(time.perf_counter() - started)
    return memory, min(timings)


def measure(work: Work, names: Sequence[str], rounds: Rounds) -> dict[str, Any]:
    """Run the named systems in turns; returns what `COLUMNS` has but the shape, c and the reading.

    Seconds are for all inputs; those of the harness are scaled from the inputs that it scored. The difference is the
    largest of a score in nats, and the label is the best candidate, over the inputs that another system scored too.
    """
    packed = work.engine.name == PackedEngine.name
    same = [NO_MEMORY] * (not work.ids) + [PADDED] * (not packed)  # it would repeat the same run
    alike = [name for name in names if name in same]
    names = [name for name in names if name not in same]
    systems = dict(_systems(work, [*dict.fromkeys([*names, DEEPTHINK])], rounds))
    floor = products_of(work.engine, work.memory, work.queries)
    if PRODUCTS in names:
        systems[PRODUCTS] = System(rounds.all, {0: lambda: (floor.seconds(), [])}, len(work.queries))
    for number in range(max(system.rounds for system in systems.values())):
        for system in systems.values():
            if number < system.rounds:
                system.run(number)
    seconds = {name: system.best * len(work.queries) / system.inputs for name, system in systems.items()}
    ours, others = systems[DEEPTHINK].scores, [systems[name] for name in (HARNESS, OFFICIAL, PADDED) if name in systems]
    found: dict[str, Any] = seconds | dict.fromkeys(alike, seconds[DEEPTHINK])
    found |= {"L": len(work.ids), "engine": work.engine.name}
    found |= {f"{name} batch": systems[name].batch for name in (HARNESS, OFFICIAL) if name in systems}
    if HARNESS in systems:
        scored = systems[HARNESS].inputs
        found |= {"harness inputs": scored, "scaled by": len(work.queries) / scored}
    if others:
        found["difference"] = max(difference(ours, system.scores) for system in others)
        found["same label"] = "yes" if all(same_argmax(ours, system.scores) for system in others) else "no"
    return found


def difference(ours: Sums, theirs: Sums) -> float:
    """The largest difference of two scores, in nats, over the inputs that both scored."""
    pairs = zip(ours, theirs, strict=False)
    return max(abs(one - two) for pair in pairs for one, two in zip(*pair, strict=True))


def same_argmax(ours: Sums, theirs: Sums) -> bool:
    """Whether the best candidate is the same one for every input that both scored."""
    return all(one.index(max(one)) == two.index(max(two)) for one, two in zip(ours, theirs, strict=False))


def _systems(work: Work, names: Sequence[str], rounds: Rounds) -> Iterator[tuple[str, System]]:
    """The named systems that give scores, slowest first."""
    engine, memory, queries = work.engine, work.memory, work.queries
    if HARNESS in names:
        yield HARNESS, _harness(work, rounds)
    if OFFICIAL in names:
        ways = {
            batch: _timed(partial(official_scores, engine.model, memory, queries, batch, work.width))
            for batch in OFFICIAL_BATCHES
        }
        yield OFFICIAL, System(rounds.official, ways, len(queries))
    if PADDED in names:
        padded = choose_engine(engine.model, "padded")
        yield PADDED, System(rounds.official, {0: _timed(partial(_ours, padded, memory, queries))}, len(queries))
    for name, past in ((DEEPTHINK, memory), (NO_MEMORY, random_memory(engine, 0))):
        if name in names:
            yield name, System(rounds.all, {0: _timed(partial(_ours, engine, past, queries))}, len(queries))


def _harness(work: Work, rounds: Rounds) -> System:
    inner = {batch: Harness(work.engine.model, batch) for batch in HARNESS_BATCHES}

    def ways(inputs: int) -> Ways:
        return {batch: _timed(partial(one.scores, work.ids, work.queries[:inputs])) for batch, one in inner.items()}

    tries = {} if rounds.harness_tries is None else ways(rounds.harness_tries)
    inputs = min(rounds.harness_inputs, len(work.queries))
    return System(rounds.harness, ways(inputs), inputs, tries)


def _ours(engine: Engine, memory: Memory, queries: Sequence[TokenizedQuery]) -> Sums:
    return [list(one.sums) for one in score(engine, memory, queries)]


def _timed(function: Callable[[], Sums]) -> Callable[[], tuple[float, Sums]]:
    def inner() -> tuple[float, Sums]:
        started = time.perf_counter()
        found = function()
        return time.perf_counter() - started, found

    return inner
