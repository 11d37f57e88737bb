"""The memory: every layer's keys and values, in float32, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from deepthink_cli.origin import Drift, Origin


@dataclass(frozen=True, eq=False)
class Memory:
    """K~_t and V~_t of every layer (Eq. 5): what a model remembers of its demonstrations.

    `keys[l]` and `values[l]` are float32 tensors (kv_heads, L, head_dim) on layer l's device; keys are
    stored as the model caches them, after rotary rotation. `drift` holds the change of each reading
    after the first. `origin` is None for a reading that no artifact will be made of.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    iteration: int = 1
    drift: tuple[Drift, ...] = ()
    origin: Origin | None = None

    @property
    def length(self) -> int:
        """L, the number of demonstration tokens."""
        return self.keys[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def gate(self, present: Memory, eta: float) -> Memory:
        """K~_t = eta K_t + (1 - eta) K~_(t-1), the same for V (Eq. 4): a step of eta toward the present."""
        return self.moved(self.toward(present), eta)

    def toward(self, present: Memory, momentum: float = 0.0, before: Memory | None = None) -> Memory:
        """The step present - history, layer by layer, plus `momentum` times the step before it, if there was one."""
        keys = [new - old for old, new in zip(self.keys, present.keys, strict=True)]
        values = [new - old for old, new in zip(self.values, present.values, strict=True)]
        if momentum and before is not None:
            keys = [step + momentum * last for step, last in zip(keys, before.keys, strict=True)]
            values = [step + momentum * last for step, last in zip(values, before.values, strict=True)]
        return self._with(keys, values)

    def moved(self, step: Memory, eta: float) -> Memory:
        """The memory after a step of size eta: the next iteration, with its drift noted."""
        keys = [old + eta * by for old, by in zip(self.keys, step.keys, strict=True)]
        values = [old + eta * by for old, by in zip(self.values, step.values, strict=True)]
        drift = Drift(_changes(self.keys, keys), _changes(self.values, values))
        return replace(self._with(keys, values), iteration=self.iteration + 1, drift=(*self.drift, drift))

    def followed_by(self, present: Memory) -> Memory:
        """This memory with the tokens of another behind it: (kv_heads, L + S, head_dim)."""
        return self._with(
            [torch.cat(pair, dim=1) for pair in zip(self.keys, present.keys, strict=True)],
            [torch.cat(pair, dim=1) for pair in zip(self.values, present.values, strict=True)],
        )

    def to(self, devices: Sequence[torch.device]) -> Memory:
        """The same memory with layer l on `devices[l]`."""
        return self._with(
            [tensor.to(device) for tensor, device in zip(self.keys, devices, strict=True)],
            [tensor.to(device) for tensor, device in zip(self.values, devices, strict=True)],
        )

    def as_cache(self, dtype: torch.dtype = torch.float32, rows: int = 1) -> DynamicCache:
        """A new transformers cache with this memory as its past: `model.generate` continues from it.

        Args:
            dtype: what attention reads; give the model's own.
            rows: batch size; every row gets the same memory.

        A forward pass appends to its cache, so take a new one for every pass.
        """
        shaped = [
            tuple(tensor.to(dtype)[None].expand(rows, -1, -1, -1) for tensor in layer)
            for layer in zip(self.keys, self.values, strict=True)
        ]
        return DynamicCache(shaped)

    def not_finite(self) -> str | None:
        """The first place with NaN or infinite values, as in `layer 3's keys`; None where there is none."""
        for layer, tensors in enumerate(zip(self.keys, self.values, strict=True)):
            for part, tensor in zip(("keys", "values"), tensors, strict=True):
                if not bool(tensor.isfinite().all()):
                    return f"layer {layer}'s {part}"
        return None

    def _with(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Memory:
        return replace(self, keys=tuple(keys), values=tuple(values))


def from_cache(cache: DynamicCache, last: int) -> Memory:
    """The last `last` tokens of a one-row cache, in float32 (Eq. 2: the present)."""
    layers: list[Any] = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    # A copy even in float32: the cache may be a view of a longer one.
    keys = tuple(layer.keys[0, :, -last:].to(torch.float32, copy=True) for layer in layers)
    values = tuple(layer.values[0, :, -last:].to(torch.float32, copy=True) for layer in layers)
    return Memory(keys, values)


def _changes(before: Sequence[Tensor], after: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(_change(old, new) for old, new in zip(before, after, strict=True))


def _change(old: Tensor, new: Tensor) -> float:
    moved = float(torch.linalg.vector_norm(new - old))
    return moved / float(torch.linalg.vector_norm(old)) if moved else 0.0
