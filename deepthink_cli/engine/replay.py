"""Passes of a few fixed sizes, which a GPU repeats as recorded instead of starting every operation anew.

A pass over a small model takes a GPU less time to compute than the processor takes to start its operations. A CUDA
graph starts all of them at once, with the sizes and the addresses that they had when it was recorded. So the sizes of a
scoring pass are rounded up, and what differs between passes is copied to where the recording finds it: the numbers that
say what is read or scored, in one copy, and the keys and values of a memory.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from deepthink_cli.engine.attention import Kept, has_temperature, over_memory
from deepthink_cli.engine.base import Past, Reading
from deepthink_cli.engine.feedforward import fused_activations, last_feedforward_at
from deepthink_cli.engine.fixed import FixedPass, Sizes
from deepthink_cli.engine.kernels import Lengths, has_varlen
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.own import Chained
from deepthink_cli.engine.packing import copied, network_inputs, pinned, sequence
from deepthink_cli.engine.reach import Reach
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.memory import Memory
from deepthink_cli.model.families import window_sizes

if TYPE_CHECKING:
    from torch import Tensor

_Run: TypeAlias = "Callable[[Past, Tensor], list[Tensor]]"  # of a pass after a past, with numbers on the device

_PASTS = 4  # lengths of memories for which passes are kept
_TOLERANCE = 1e-3  # absolute and relative: the same kernels compute both


class Replays:
    """A model's passes, each recorded when its sizes come for the second time, and repeated from then on.

    A recording that fails, or gives other results than the pass that it repeats, is the last one: `failure` says why.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.failure: str | None = None
        self._after: OrderedDict[tuple[object, ...], _After] = OrderedDict()

    def log_probabilities(self, past: Past, fixed: FixedPass) -> Tensor | None:
        """The requested log-probabilities of a pass after the past; None if there is no recording of its sizes.

        The next pass overwrites them. The caller holds the model's lock.
        """
        if past and past[0].added:
            return None
        found = self._repeated(past, fixed.sizes, fixed.numbers_P, partial(_score, self.model, fixed))
        return None if found is None else found[0][: len(fixed.requested.asked_N)]

    def present(self, reading: Reading) -> Memory | None:
        """The keys and values of a reading; None if none of its length after as long a history is recorded."""
        length, past = len(reading), () if reading.history is None else (reading.history,)
        positions = range(reading.start, reading.start + length)
        numbers_P = torch.tensor([*reading.token_ids, *positions])
        found = self._repeated(past, length, numbers_P, partial(_read, self.model, length))
        if found is None:
            return None
        copies = [tensor.clone() for tensor in found]
        return Memory(tuple(copies[::2]), tuple(copies[1::2]))

    def _repeated(self, past: Past, sizes: Sizes | int, numbers_P: Tensor, run: _Run) -> list[Tensor] | None:
        if self.failure is not None or not past:
            return None
        key = tuple(memory.length for memory in past), past[0].first_weight, past[0].keys[0].dtype
        after = self._after.setdefault(key, _After())
        self._after.move_to_end(key)
        if len(self._after) > _PASTS:
            self._after.popitem(last=False)
        try:
            return after.repeated(past, sizes, numbers_P, run)
        except Exception as error:  # a GPU's driver can fail to record in any way
            self.failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self._after.clear()
            return None


class _After:
    """Passes after memories of the same lengths and dtype, each of which is copied to `past` in its turn."""

    def __init__(self) -> None:
        self.past: Past = ()
        self.copied: list[Tensor] = []
        self.recorded: dict[Sizes | int, _Recorded | None] = {}

    def repeated(self, past: Past, sizes: Sizes | int, numbers_P: Tensor, run: _Run) -> list[Tensor] | None:
        """The results of a pass; None when its sizes come for the first time."""
        if sizes not in self.recorded:
            self.recorded[sizes] = None
            return None
        self._copy(past)
        recorded = self.recorded[sizes]
        if recorded is None:
            recorded = self.recorded[sizes] = _Recorded(numbers_P, self.past, run)
        return recorded(numbers_P)

    def _copy(self, past: Past) -> None:
        """Make `past` the same as this one, if it is not."""
        tensors = _tensors(past)
        if len(self.copied) == len(tensors) and all(map(operator.is_, self.copied, tensors)):
            return
        if not self.past:
            self.past = tuple(
                replace(memory, keys=_empty_like(memory.keys), values=_empty_like(memory.values)) for memory in past
            )
        self.copied = tensors
        for target, source in zip(_tensors(self.past), tensors, strict=True):
            target.copy_(source, non_blocking=True)


class _Recorded:
    """One pass after a past, recorded; raises DeepThinkError if it gives other results than the pass itself."""

    def __init__(self, numbers_P: Tensor, past: Past, run: _Run) -> None:
        self.numbers_P = copied(numbers_P, past[0].keys[0].device)
        expected = run(past, self.numbers_P)
        self.repeat, self.results = record(partial(run, past, self.numbers_P))
        self.repeat()
        for found, right in zip(self.results, expected, strict=True):
            if not torch.allclose(found, right, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
                raise DeepThinkError("a recorded pass gives other results")

    def __call__(self, numbers_P: Tensor) -> list[Tensor]:
        self.numbers_P.copy_(pinned(numbers_P, self.numbers_P.device), non_blocking=True)
        self.repeat()
        return self.results


def _score(model: LanguageModel, fixed: FixedPass, past: Past, numbers_P: Tensor) -> list[Tensor]:
    """The log-probabilities that are requested of a pass."""
    sizes, parts = fixed.sizes, numbers_P.split(fixed.sizes.parts())  # type: ignore[no-untyped-call]
    ids_T, depths_T, places_M, asked_N, tokens_N, bounds_C, key_bounds_C, places_K = parts
    own = Chained(
        Lengths(bounds_C.int(), sizes.longest),
        Lengths(key_bounds_C.int(), sizes.longest_keys),
        places_K if sizes.keys else None,
    )
    with (
        over_memory(model.network, [Reach(past, fixed.blocks, places_M)], own=own),
        fused_activations(model.network.base_model),
        last_feedforward_at(places_M, model.network.base_model),
    ):
        inputs = network_inputs(ids_T[None], depths_T[None] + sum(memory.length for memory in past))
        return [model.log_probabilities(inputs, places_M, asked_N, tokens_N)]


def _read(model: LanguageModel, length: int, past: Past, numbers_P: Tensor) -> list[Tensor]:
    """The keys and values of every layer of a reading, in turns."""
    kept: Kept = {}
    chain = Lengths.of_one(length, numbers_P.device)
    reach = Reach(past, (sequence(0, length),))
    body: Any = model.network.base_model
    with over_memory(model.network, [reach], kept, own=Chained(chain, chain, None)), fused_activations(body):
        body(**network_inputs(*numbers_P.view(2, 1, length)))
    return [tensor for layer in sorted(kept) for tensor in kept[layer]]


def record(run: Callable[[], list[Tensor]]) -> tuple[Callable[[], object], list[Tensor]]:
    """What `run` starts on the GPU as a function that starts it again, and its results, which that overwrites."""
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


def _tensors(past: Past) -> list[Tensor]:
    return [tensor for memory in past for tensor in (*memory.keys, *memory.values)]


def _empty_like(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(map(torch.empty_like, tensors))
