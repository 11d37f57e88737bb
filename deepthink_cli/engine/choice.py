"""How a model reads and scores: packed where a probe finds the same scores both ways, otherwise padded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from threading import Lock
from warnings import warn
from weakref import WeakKeyDictionary

import torch

from deepthink_cli.engine.budget import KEPT, found_tokens, room, rows_over, tokens_over
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import PackedRow, lines, tree
from deepthink_cli.engine.probe import Verdict, try_packed
from deepthink_cli.engine.reading import Reading, read_packed
from deepthink_cli.errors import ran_out_of_memory
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery

PADDED_COST = "each candidate is a row with its own copy of the memory, several times slower than packed scoring"


@dataclass
class Engine:
    """How a model reads and scores, packed or padded, and what a pass may hold.

    `verdict` is the probe's. `batch_tokens` bounds the tokens of a pass, except that one row always runs; it halves
    whenever a pass does not fit the device. `free` is the number of bytes that a pass may take.
    """

    verdict: Verdict
    batch_tokens: int
    free: int

    @property
    def packed(self) -> bool:
        """Whether the rows of a pass share one memory; otherwise each has a copy of it."""
        return self.verdict.reason is None

    @property
    def description(self) -> str:
        """The engine in one line; for the padded one, with its reason and its cost."""
        if not self.packed:
            return f"padded engine: {self.verdict.reason}; {PADDED_COST}"
        apart, own = self.verdict.difference, self.verdict.rounding
        return (
            f"packed engine, {self.batch_tokens} tokens a pass; in a probe, packed and padded scores differ by "
            f"{apart:.1e} nats, rounding alone by {own:.1e}"
        )

    def rows(self, queries: Sequence[TokenizedQuery]) -> list[PackedRow]:
        """The rows that must run to score the queries, longest first."""
        found = (
            row
            for number, query in enumerate(queries)
            for row in ([tree(number, query)] if self.packed else lines(number, query))
        )
        return sorted(found, key=len, reverse=True)

    def bounds(self, model: LanguageModel, memory: Memory, width: int) -> tuple[int, int]:
        """The most tokens and the most rows of a pass over this memory, for rows of at most `width` tokens."""
        if self.packed:
            return min(self.batch_tokens, tokens_over(model, memory, self.free)), 2**20
        return self.batch_tokens, rows_over(model, memory, width, self.free)


_engines: WeakKeyDictionary[LanguageModel, Engine] = WeakKeyDictionary()
_finding = Lock()


def engine_of(model: LanguageModel) -> Engine:
    """The model's engine, chosen by a probe on first use; warns where an error prevents packing."""
    if (engine := _known(model)) is not None:
        return engine
    with model.lock:
        if (engine := _known(model)) is None:
            engine = _found(model)
            with _finding:
                _engines[model] = engine
        return engine


def _known(model: LanguageModel) -> Engine | None:
    with _finding:
        return _engines.get(model)


def read_each(model: LanguageModel, readings: Sequence[Reading]) -> list[Memory]:
    """The present of every reading, in order; readings that fit `batch_tokens` together share a pass.

    Raises as `LanguageModel.read` does.
    """
    engine, found = engine_of(model), list[Memory]()
    while len(found) < len(readings):
        one = readings[len(found)]
        if not engine.packed:
            found.append(model.read(one.token_ids, one.history, one.start))
            continue
        fed = list(accumulate(map(len, _on_one_side(model, readings[len(found) :]))))
        together = max(1, bisect_right(fed, engine.batch_tokens))
        try:
            found += read_packed(model, readings[len(found) : len(found) + together])
        except Exception as error:
            if together == 1 or not ran_out_of_memory(error):
                raise
            engine.batch_tokens = fed[together - 1] // 2
    return found


def _on_one_side(model: LanguageModel, readings: Sequence[Reading]) -> Iterator[Reading]:
    """The first readings that use the same rotary factors: a pass uses those of its largest position."""
    sides = [model.limits.side(one.start + len(one)) for one in readings]
    return (one for one, side in takewhile(lambda pair: pair[1] == sides[0], zip(readings, sides, strict=True)))


def _found(model: LanguageModel) -> Engine:
    # glibc reuses freed blocks up to the size of the largest one so far: without this, the largest tensors of a
    # pass are mapped again each time, with a page fault for every 4 KiB (docs/performance.md).
    torch.empty(KEPT, dtype=torch.uint8)
    verdict = try_packed(model)
    if verdict.failure is not None:
        warn(
            f"packed scoring failed, so rows are padded: {verdict.failure}; {PADDED_COST}", RuntimeWarning, stacklevel=3
        )
    return Engine(verdict, model.batch_tokens or found_tokens(model), room(model.device))
