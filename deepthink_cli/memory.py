"""The memory: every layer's keys and values, in float32, and their provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, repeat, starmap
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache

from deepthink_cli.corrections import Head
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.provenance import Drift, Provenance
from deepthink_cli.updates import Gate, Place, UpdateRule

State = tuple[Tensor | None, ...]  # state of an update rule, one entry for each tensor of a memory
PARTS: tuple[Literal["keys", "values"], ...] = ("keys", "values")


@dataclass(frozen=True, eq=False)
class Memory:
    """K~_t and V~_t of every layer (Eq. 5).

    `keys[l]` and `values[l]` are float32 tensors (kv_heads, L, head_dim) on layer l's device, except in a copy
    for attention (see `to`); keys are stored as the model caches them, after rotary rotation. `drift` holds the
    change of each reading after the first. `provenance` is None for a reading that is not saved as an artifact.
    `changing` changes the network during the passes of queries (`deepthink vectors`): it is called with the network and
    the indices of the tokens after which candidates begin. No file of a memory holds it.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    iteration: int = 1
    drift: tuple[Drift, ...] = ()
    provenance: Provenance | None = None
    changing: Callable[[Any, Tensor], AbstractContextManager[Any]] | None = None

    @property
    def length(self) -> int:
        """L, the number of demonstration tokens."""
        return self.keys[0].shape[1]

    @property
    def origin(self) -> Provenance:
        """The provenance, of a memory that has one."""
        assert self.provenance is not None
        return self.provenance

    def recorded(self, **changes: Any) -> Memory:
        """The memory with these fields of its provenance changed."""
        return replace(self, provenance=replace(self.origin, **changes))

    @property
    def parts(self) -> tuple[Memory, ...]:
        """The parts that the model read without the others, as views; the memory itself if it read all together."""
        lengths = self.provenance.demonstrations.parts if self.provenance else ()
        spans = pairwise(accumulate(lengths, initial=0))
        return tuple(self.tokens(*span) for span in spans) or (self,)

    @property
    def head(self) -> Head | None:
        """The stored head, which scores labels by hidden states after all of this memory; None if none is stored."""
        origin = self.provenance
        stored = (origin.calibrated, origin.thresholds) if origin else ()
        return next((each.head[str(self.iteration)] for each in stored if each and each.head), None)

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def gate(self, present: Memory, eta: float) -> Memory:
        """K~_t = eta K_t + (1 - eta) K~_(t-1), the same for V (Eq. 4): a step of eta toward the present."""
        return self.updated(present.copy(), Gate(eta))[0]

    @torch.inference_mode()
    def updated(self, present: Memory, rule: UpdateRule, state: State = ()) -> tuple[Memory, State]:
        """The next iteration by an update rule (Eq. 4), and the rule's state for the next update.

        `state` is empty at the first update. A rule may overwrite the tensors of `present` and `state`, so that at
        most three memories exist at once.
        """
        layers, states = len(self.keys), state or repeat(None)
        olds, news = (*self.keys, *self.values), (*present.keys, *present.values)
        places = [Place(self.iteration + 1, layer, layers, part) for part in PARTS for layer in range(layers)]
        results = [rule(*tensors) for tensors in zip(olds, news, states, places, strict=False)]
        moved = [_checked(rule, old, next_value) for old, (next_value, _) in zip(olds, results, strict=True)]
        norms = [torch.linalg.vector_norm(new - old) for old, new in zip(olds, moved, strict=True)]
        numbers = _numbers([*norms, *(torch.linalg.vector_norm(old) for old in olds)])
        pairs = zip(numbers[: len(olds)], numbers[len(olds) :], strict=True)
        drift = tuple(change / size if change else 0.0 for change, size in pairs)  # |new - old| / |old|
        following = replace(
            self._with(moved[:layers], moved[layers:]),
            iteration=self.iteration + 1,
            drift=(*self.drift, Drift(drift[:layers], drift[layers:])),
        )
        return following, tuple(next_state for _, next_state in results)

    def copy(self) -> Memory:
        """The same memory with copies of its tensors."""
        return self._changed(lambda tensor: tensor.to(torch.float32, copy=True))

    def followed_by(self, *others: Memory) -> Memory:
        """This memory followed by the S tokens of all others: (kv_heads, L + S, head_dim)."""
        return self._changed(lambda *parts: torch.cat(parts, dim=1), *others)

    def tokens(self, start: int, stop: int) -> Memory:
        """The tokens from `start` to before `stop`, as views of this memory's tensors."""
        return self._changed(lambda tensor: tensor[:, start:stop])

    def to(self, devices: Sequence[torch.device], dtype: torch.dtype = torch.float32) -> Memory:
        """The same memory with layer l on `devices[l]`, in `dtype`; converted once instead of in every pass."""
        return self._with(
            [tensor.to(device, dtype) for tensor, device in zip(self.keys, devices, strict=True)],
            [tensor.to(device, dtype) for tensor, device in zip(self.values, devices, strict=True)],
        )

    def as_cache(self, dtype: torch.dtype = torch.float32, rows: int = 1) -> DynamicCache:
        """A new transformers cache with this memory as its past: `model.generate` continues from it.

        Args:
            dtype: the dtype that attention reads; use the model's own.
            rows: batch size; every row gets the same memory.

        A forward pass appends to its cache, so create a new one for every pass.
        """
        shaped = [
            tuple(tensor.to(dtype)[None].expand(rows, -1, -1, -1) for tensor in layer)
            for layer in zip(self.keys, self.values, strict=True)
        ]
        return DynamicCache(shaped)

    def not_finite(self) -> str | None:
        """The first place with NaN or infinite values, as in `layer 3's keys`; None if there is none."""
        pairs = zip(self.keys, self.values, strict=True)
        finite = _numbers([tensor.isfinite().all() for pair in pairs for tensor in pair])
        if all(finite):
            return None
        layer, part = divmod(finite.index(False), 2)
        return f"layer {layer}'s {PARTS[part]}"

    def _with(self, keys: Iterable[Tensor], values: Iterable[Tensor]) -> Memory:
        return replace(self, keys=tuple(keys), values=tuple(values))

    def _changed(self, change: Callable[..., Tensor], *others: Memory) -> Memory:
        """The memory with the result of a call for each tensor, together with the same tensor of other memories."""
        keys, values = (zip(*(getattr(each, part) for each in (self, *others)), strict=True) for part in PARTS)
        return self._with(starmap(change, keys), starmap(change, values))


def from_cache(cache: DynamicCache, last: int) -> Memory:
    """The last `last` tokens of a one-row cache, in float32 (Eq. 2: the present)."""
    layers: list[Any] = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    # A copy even in float32: the cache may be a view of a longer one.
    keys = tuple(layer.keys[0, :, -last:].to(torch.float32, copy=True) for layer in layers)
    values = tuple(layer.values[0, :, -last:].to(torch.float32, copy=True) for layer in layers)
    return Memory(keys, values)


def _checked(rule: UpdateRule, old: Tensor, moved: Tensor) -> Tensor:
    """The tensor that a rule returned, copied if it is the history itself; raises DeepThinkError if it does not fit."""
    if (moved.shape, moved.dtype) != (old.shape, old.dtype):
        raise DeepThinkError(
            f"{type(rule).__name__}: an update rule must return {old.dtype} {tuple(old.shape)}, as the history is; "
            f"it returned {moved.dtype} {tuple(moved.shape)}"
        )
    return moved.clone() if moved is old else moved


def _numbers(scalars: Sequence[Tensor]) -> list[float]:
    """The values of 0-d tensors; waits for the device once, not for each tensor."""
    return torch.stack([scalar.to(scalars[0].device) for scalar in scalars]).tolist()
