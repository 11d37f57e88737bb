"""Scoring passes of a few fixed sizes, which a GPU repeats as recorded instead of starting every operation anew.

A pass over a small model takes a GPU less time to compute than the processor takes to start its operations. A CUDA
graph starts all of them at once, with the sizes and the addresses that they had when it was recorded. So the sizes of a
pass are rounded up, and what differs between passes is copied to where the recording finds it: the numbers that say
what is scored, in one copy, and the keys and values of a memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch

from deepthink_cli.engine.attention import has_temperature, over_memory
from deepthink_cli.engine.base import Past
from deepthink_cli.engine.feedforward import fused_activations, last_feedforward_at
from deepthink_cli.engine.kernels import Lengths, has_varlen
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.own import Chained
from deepthink_cli.engine.packing import (
    Block,
    LogprobRequests,
    PackedRow,
    blocks,
    chains,
    copied,
    network_inputs,
    requests,
)
from deepthink_cli.engine.reach import Reach
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.memory import Memory
from deepthink_cli.model.families import window_sizes

if TYPE_CHECKING:
    from torch import Tensor

_PASTS = 4  # lengths of memories for which passes are kept
_TOLERANCE = 1e-3  # nats, and relative: the same kernels compute both


@dataclass(frozen=True)
class Sizes:
    """The sizes of a pass, rounded up.

    Its tokens, and the chains that they form, of which the longest has `longest` tokens and `longest_keys` keys; the
    number of keys of all chains, 0 if they are the tokens in order; the places and log-probabilities requested.
    """

    tokens: int
    chains: int
    keys: int
    longest: int
    longest_keys: int
    places: int
    asked: int

    def parts(self) -> list[int]:
        """The lengths of the parts of `FixedPass.numbers_P`."""
        bounds = self.chains + 1
        return [self.tokens, self.tokens, self.places, self.asked, self.asked, bounds, bounds, self.keys]


@dataclass(frozen=True)
class FixedPass:
    """Rows concatenated in a pass of rounded sizes.

    `numbers_P` holds, one after another, the tokens' ids and depths, the places, the requests of log-probabilities
    (their numbers of a place, and their tokens), the bounds of the chains among tokens and among keys, and the keys'
    places. What was added at the end of each is computed and not used.
    """

    sizes: Sizes
    blocks: tuple[Block, ...]
    numbers_P: Tensor
    requested: LogprobRequests

    @classmethod
    def of(cls, rows: Sequence[PackedRow]) -> FixedPass:
        """The rows, with rows after them whose scores nobody asks for."""
        fed, longest = sum(map(len, rows)), _power(max(map(len, rows)))
        added = _rounded(fed) - fed
        filled = [*rows, *(_filling(min(longest, added - done)) for done in range(0, added, longest))]
        starts = [0, *accumulate(map(len, filled))][:-1]
        requested, of_rows = requests(filled, starts), blocks(filled)
        cut = chains(of_rows)
        sizes = Sizes(
            fed + added,
            _power(len(cut.queries)),
            0 if cut.places_K is None else _rounded(len(cut.places_K)),
            longest,
            _power(max(cut.keys)),
            _power(len(requested.places_M)),
            _power(len(requested.asked_N)),
        )
        parts = [
            np.array([token for row in filled for token in row.ids]),
            np.array([depth for row in filled for depth in row.depths]),
            requested.places_M.numpy(),
            requested.asked_N.numpy(),
            requested.tokens_N.numpy(),
            np.array([0, *accumulate(cut.queries)]),
            np.array([0, *accumulate(cut.keys)]),
            np.empty(0, np.int64) if cut.places_K is None else cut.places_K,
        ]
        # Bounds are continued by empty chains at the end; other numbers by any that exist: 0.
        modes = ["constant"] * 5 + ["edge"] * 2 + ["constant"]
        longer = [
            np.pad(part, (0, size - len(part)), mode=mode)  # type: ignore[call-overload]
            for part, size, mode in zip(parts, sizes.parts(), modes, strict=True)
        ]
        return cls(sizes, of_rows, torch.from_numpy(np.concatenate(longer)), requested)


class Replays:
    """A model's scoring passes, each recorded when its sizes come for the second time.

    A recording that fails, or gives other scores than the pass that it repeats, is the last one: `failure` says why.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.failure: str | None = None
        self._after: OrderedDict[tuple[tuple[int, ...], float], _After] = OrderedDict()

    def log_probabilities(self, past: Past, fixed: FixedPass) -> Tensor | None:
        """The requested log-probabilities of a pass after the past; None if there is no recording of its sizes.

        The next pass overwrites them. The caller holds the model's lock.
        """
        if self.failure is not None or not past or past[0].added:
            return None
        key = tuple(memory.length for memory in past), past[0].first_weight
        if key not in self._after:
            self._after[key] = _After(past)
        self._after.move_to_end(key)
        if len(self._after) > _PASTS:
            self._after.popitem(last=False)
        try:
            log_probabilities_N = self._after[key].run(self.model, past, fixed)
        except Exception as error:  # a GPU's driver can fail to record in any way
            self.failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self._after.clear()
            return None
        return None if log_probabilities_N is None else log_probabilities_N[: len(fixed.requested.asked_N)]


class _After:
    """Passes after memories of the same lengths, each of which is copied to `past` in its turn."""

    def __init__(self, like: Past) -> None:
        self.past = tuple(
            replace(memory, keys=_empty_like(memory.keys), values=_empty_like(memory.values)) for memory in like
        )
        self.copied: Past = ()
        self.recorded: dict[Sizes, _Recorded | None] = {}

    def run(self, model: LanguageModel, past: Past, fixed: FixedPass) -> Tensor | None:
        """The log-probabilities of a pass; None when its sizes come for the first time."""
        if fixed.sizes not in self.recorded:
            self.recorded[fixed.sizes] = None
            return None
        if len(self.copied) != len(past) or any(map(_differ, self.copied, past)):
            self.copied = past
            for to, memory in zip(self.past, past, strict=True):
                for target, source in zip((*to.keys, *to.values), (*memory.keys, *memory.values), strict=True):
                    target.copy_(source, non_blocking=True)
        recorded = self.recorded[fixed.sizes]
        if recorded is None:
            recorded = self.recorded[fixed.sizes] = _Recorded(model, self.past, fixed)
        return recorded(fixed.numbers_P)


class _Recorded:
    """One pass after a past, recorded; raises DeepThinkError if it gives other results than the pass itself."""

    def __init__(self, model: LanguageModel, past: Past, fixed: FixedPass) -> None:
        self.model, self.past, self.sizes, self.blocks = model, past, fixed.sizes, fixed.blocks
        self.numbers_P = copied(fixed.numbers_P, model.device)
        expected_N = self._run()
        self.repeat, self.log_probabilities_N = record(self._run)
        self.repeat()
        if not torch.allclose(self.log_probabilities_N, expected_N, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            raise DeepThinkError("a recorded pass gives other scores")

    def __call__(self, numbers_P: Tensor) -> Tensor:
        self.numbers_P.copy_(numbers_P.pin_memory() if self.numbers_P.is_cuda else numbers_P, non_blocking=True)
        self.repeat()
        return self.log_probabilities_N

    def _run(self) -> Tensor:
        ids_T, depths_T, places_M, asked_N, tokens_N, bounds_C, key_bounds_C, places_K = self.numbers_P.split(
            self.sizes.parts()
        )  # type: ignore[no-untyped-call]
        own = Chained(
            Lengths(bounds_C.int(), self.sizes.longest),
            Lengths(key_bounds_C.int(), self.sizes.longest_keys),
            places_K if self.sizes.keys else None,
        )
        network, length = self.model.network, sum(memory.length for memory in self.past)
        with (
            over_memory(network, [Reach(self.past, self.blocks, places_M)], own=own),
            fused_activations(network.base_model),
            last_feedforward_at(places_M, network.base_model),
        ):
            inputs = network_inputs(ids_T[None], depths_T[None] + length)
            return self.model.log_probabilities(inputs, places_M, asked_N, tokens_N)


def record(run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
    """What `run` starts on the GPU as a function that starts it again, and its result, which that overwrites."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found = run()
    return graph.replay, found


def replayable(model: LanguageModel) -> bool:
    """Whether passes may be recorded: on one GPU that has a call for rows of all lengths, with weights that stay there.

    Not where attention depends on the place of a token in other ways than by its positions and its rows.
    """
    modules = [*model.network.modules()]
    return (
        model.replays
        and has_varlen(model.device)
        and model.dtype in (torch.float16, torch.bfloat16)
        and len({*model.layer_devices}) == 1
        and model.identity.quantize is None
        and not window_sizes(model.network.config.get_text_config(decoder=True))
        and not any(has_temperature(module) or hasattr(module, "_hf_hook") for module in modules)  # accelerate's
    )


def _differ(one: Memory, other: Memory) -> bool:
    return one.keys[0] is not other.keys[0]


def _empty_like(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(map(torch.empty_like, tensors))


def _filling(size: int) -> PackedRow:
    """A row of tokens that stand for none, from which nothing is requested."""
    return PackedRow(query=0, ids=(0,) * size, depths=tuple(range(size)), ends=(size,) * size, first=0, asked=())


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def _rounded(number: int) -> int:
    """The next multiple of 64 of which at most the first four bits are set: at most 63 more, or an eighth."""
    step = 1 << max(6, (number - 1).bit_length() - 4)
    return -(-number // step) * step
