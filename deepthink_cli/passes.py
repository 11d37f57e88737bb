"""How a model reads and scores: packed over memories, or one sequence a row; found by trying, not from a list."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from deepthink_cli.activation import fused_activations
from deepthink_cli.attention import Reach, over_memory
from deepthink_cli.feedforward import last_feedforward_at
from deepthink_cli.head import SLICE
from deepthink_cli.memory import Memory
from deepthink_cli.model import LanguageModel
from deepthink_cli.packing import Row, blocks, lines, tree, wanted
from deepthink_cli.reading import Reading, read_packed
from deepthink_cli.tokens import TokenizedQuery

Past = tuple[Memory, ...]  # what stands before every row of a pass, one memory behind the other

_FEWEST_TOKENS, _CPU_TOKENS, _CUDA_TOKENS = 256, 1024, 16384  # of a pass, if found: more gained nothing
_KEPT = 32 * 2**20 - 2**16  # bytes of the largest tensor that glibc's allocator keeps for the next pass
_COPIES = 256 * 2**20  # bytes of keys and values that a pass may hold where every row needs its own memory
_PROBE_MEMORY = (5, 6, 7, 8, 9, 3, 4)
_PROBE = (
    TokenizedQuery((5, 6, 7, 8), ((9,), (10, 11), (10, 12, 13), (10, 12))),
    TokenizedQuery((5, 6), ((9, 4, 3), (10, 11), (9,))),
    TokenizedQuery((7, 8), ((3,), (4,))),
)


@dataclass
class Engine:
    """A model's way of reading and scoring: the path it takes, and the tokens of a pass.

    `difference` is the largest between the two paths' scores on a short probe, in nats; None where the
    packed one cannot run. `batch_tokens` halves whenever a pass does not fit the device.
    """

    packed: bool
    difference: float | None
    batch_tokens: int

    def rows(self, queries: Sequence[TokenizedQuery]) -> list[Row]:
        """What must be fed to score the queries, longest first."""
        found = (
            row
            for number, query in enumerate(queries)
            for row in ([tree(number, query)] if self.packed else lines(number, query))
        )
        return sorted(found, key=len, reverse=True)

    def most_rows(self, memory: Memory, itemsize: int) -> int:
        """How many rows a pass may have whatever their length."""
        copy = memory.nbytes // 4 * itemsize
        return 2**20 if self.packed else max(1, _COPIES // max(1, copy))


_engines: WeakKeyDictionary[LanguageModel, Engine] = WeakKeyDictionary()


def engine_of(model: LanguageModel) -> Engine:
    """The model's engine: packed where, on first use, a short probe gives the same scores both ways."""
    if model not in _engines:
        _engines[model] = _tried(model)
    return _engines[model]


def read_each(model: LanguageModel, readings: Sequence[Reading]) -> list[Memory]:
    """The present of every reading, in order; those that fit into the tokens of a pass together share one.

    Raises as `LanguageModel.read` does.
    """
    engine, found = engine_of(model), list[Memory]()
    while len(found) < len(readings):
        one = readings[len(found)]
        if not engine.packed:
            found.append(model.read(one.token_ids, one.history, one.start))
            continue
        fed = list(accumulate(map(len, readings[len(found) :])))
        together = max(1, bisect_right(fed, engine.batch_tokens))
        try:
            found += read_packed(model, readings[len(found) : len(found) + together])
        except torch.OutOfMemoryError:
            if together == 1:
                raise
            engine.batch_tokens = fed[together - 1] // 2
    return found


class _Packed:
    """Rows side by side in one line, each attending to itself and to the one memory."""

    def __init__(self, model: LanguageModel, rows: Sequence[Row]) -> None:
        device, self.model = model.device, model
        self.starts = [0, *accumulate(len(row) for row in rows)][:-1]
        self.ids = torch.tensor([[token for row in rows for token in row.ids]], device=device)  # (1, T)
        self.depths = torch.tensor([[depth for row in rows for depth in row.depths]], device=device)
        self.blocks = blocks(rows, model.dtype, device)

    @contextmanager
    def after(self, past: Past, places: Tensor) -> Iterator[dict[str, Any]]:
        start = sum(memory.length for memory in past)
        network, reaches = self.model.network, [Reach(past, self.blocks, places)]
        with (
            over_memory(network, reaches),
            fused_activations(network.base_model),
            last_feedforward_at(places, network.base_model),
        ):
            yield {"input_ids": self.ids, "position_ids": self.depths + start, "use_cache": False}


class _Plain:
    """One sequence a row, padded on the right, where no real token attends to it; a memory for each."""

    def __init__(self, model: LanguageModel, rows: Sequence[Row]) -> None:
        width = max(map(len, rows))
        self.model = model
        self.starts = [width * number for number in range(len(rows))]
        self.ids = torch.tensor([row.ids + (0,) * (width - len(row)) for row in rows], device=model.device)

    @contextmanager
    def after(self, past: Past, places: Tensor) -> Iterator[dict[str, Any]]:
        memory = reduce(Memory.followed_by, past)
        yield self.model.inputs(self.ids, memory.as_cache(self.model.dtype, rows=len(self.ids)), memory.length)


@torch.inference_mode()
def score_rows(
    model: LanguageModel, pasts: Sequence[Past], rows: Sequence[Row], packed: bool
) -> Iterator[dict[tuple[int, int], float]]:
    """Yield, for each past, the score of every (query, candidate) of the rows, all in one pass."""
    given = _Packed(model, rows) if packed else _Plain(model, rows)
    want = wanted(rows, given.starts, model.device)
    for past in pasts:
        with given.after(past, want.places) as inputs:
            found = model.log_probabilities(inputs, want.places, want.asked, want.tokens)
        sums = torch.zeros(len(want.scores), dtype=torch.float64).index_add_(0, want.owners, found.cpu().double())
        yield dict(zip(want.scores, sums.tolist(), strict=True))


def _tried(model: LanguageModel) -> Engine:
    # glibc keeps freed blocks up to the largest it has seen: without this, every tensor as large as the largest
    # of a pass is mapped anew each time, a page fault for every 4 KiB of it (docs/performance.md).
    torch.empty(_KEPT, dtype=torch.uint8)
    budget = model.batch_tokens or _found_tokens(model)
    plain = Engine(False, None, budget)
    try:
        memory = model.read(_PROBE_MEMORY)
        expected = next(score_rows(model, [(memory,)], plain.rows(_PROBE), packed=False))
        packed = Engine(True, None, budget)
        found = next(score_rows(model, [(memory,)], packed.rows(_PROBE), packed=True))
        present = model.read(_PROBE_MEMORY, memory, memory.length)
        read = read_packed(model, [Reading(_PROBE_MEMORY), Reading(_PROBE_MEMORY, memory, memory.length)])
        apart = max(_apart(*pair) for pair in zip((memory, present), read, strict=True))
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever a network does with what it does not know, it does not do it packed
        return plain
    difference = max(abs(found[one] - value) for one, value in expected.items())
    largest = max(abs(value) for value in expected.values())
    eps = torch.finfo(model.dtype).eps
    alike = difference <= max(1e-5, 4 * eps) * largest and apart <= max(1e-5, 2 * eps * len(memory.keys) ** 0.5)
    return Engine(alike, difference, budget)


def _apart(one: Memory, two: Memory) -> float:
    """The norm of two readings' difference, as a share of the first's; rounding grows with the root of the layers."""
    pairs = [*zip(one.keys, two.keys, strict=True), *zip(one.values, two.values, strict=True)]
    parts = [(float(torch.linalg.vector_norm(a - b)), float(torch.linalg.vector_norm(a))) for a, b in pairs]
    return math.hypot(*(part for part, _ in parts)) / math.hypot(*(whole for _, whole in parts))


def _found_tokens(model: LanguageModel) -> int:
    """The tokens of a pass: as many as half of a device's free memory, or the allocator of a processor, bears."""
    layers: Any = model.network.base_model.modules()
    widest = max(getattr(layer, "out_features", getattr(layer, "nf", 1)) for layer in layers)
    if model.device.type != "cuda":
        return max(_FEWEST_TOKENS, min(_CPU_TOKENS, _KEPT // (widest * model.dtype.itemsize)))
    free, _ = torch.cuda.mem_get_info(model.device)
    # A layer's widest activation a few times over, and what the float32 head makes of one token.
    token = 8 * widest * model.dtype.itemsize + 4 * SLICE * 4
    return max(_FEWEST_TOKENS, min(_CUDA_TOKENS, free // 2 // token))
