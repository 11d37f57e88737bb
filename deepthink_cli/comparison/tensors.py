"""How much the keys and values of two memories differ: as a whole, per layer and per token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepthink_cli.memory import PARTS, Memory


@dataclass(frozen=True)
class Change:
    """Relative change |B - A| / |A| of keys and of values; None where A is zero and B is not."""

    keys: float | None
    values: float | None

    @property
    def size(self) -> float:
        """Keys and values together, to find the largest changes."""
        return sum(math.inf if part is None else part for part in (self.keys, self.values))


@dataclass(frozen=True)
class TensorChanges:
    """The changes of all compared tensors, of each compared layer by its number, and of each token."""

    whole: Change
    layers: dict[int, Change]
    tokens: tuple[Change, ...]


def tensor_changes(before: Memory, after: Memory) -> tuple[TensorChanges | None, list[str]]:
    """Compare the layers whose keys and values have equal shapes; None if there are none, and why others are not."""
    layers = range(min(len(before.keys), len(after.keys)))
    compared = [layer for layer in layers if _shapes(before, layer) == _shapes(after, layer)]
    reasons = _reasons(before, after, compared)
    if not compared:
        return None, reasons
    squares = [_squares(before, after, layer) for layer in compared]
    by_token = torch.stack(squares).sum(0)
    by_layer = [square.sum(-1) for square in squares]
    layers_changes = {layer: _change(square) for layer, square in zip(compared, by_layer, strict=True)}
    tokens = tuple(_change(by_token[..., place]) for place in range(by_token.shape[-1]))
    return TensorChanges(_change(by_token.sum(-1)), layers_changes, tokens), reasons


def _squares(before: Memory, after: Memory, layer: int) -> Tensor:
    """Sums of squares per token, float64 (2, 2, L): of keys and values, of the difference and of A's own."""
    pairs = [(getattr(before, part)[layer].double(), getattr(after, part)[layer].double()) for part in PARTS]
    return torch.stack([torch.stack([each.square().sum((0, 2)) for each in (new - old, old)]) for old, new in pairs])


def _change(squares: Tensor) -> Change:
    """The change that sums of squares (2, 2) stand for."""
    return Change(*(_ratio(*pair) for pair in squares.sqrt().tolist()))


def _ratio(moved: float, norm: float) -> float | None:
    if not moved:
        return 0.0
    return moved / norm if norm else None


def _shapes(memory: Memory, layer: int) -> tuple[torch.Size, torch.Size]:
    return memory.keys[layer].shape, memory.values[layer].shape


def _reasons(before: Memory, after: Memory, compared: Sequence[int]) -> list[str]:
    """Why layers are not compared, one line for each cause."""
    counts, reasons = (len(before.keys), len(after.keys)), []
    if before.length != after.length:
        return [f"A has {before.length} tokens and B {after.length}: no keys and values have equal shapes"]
    if counts[0] != counts[1]:
        reasons.append(f"A has {counts[0]} layers and B {counts[1]}: layers from {min(counts)} on have no counterpart")
    different = [layer for layer in range(min(counts)) if layer not in compared]
    if different:
        first = different[0]
        shapes = " and ".join(str(list(memory.keys[first].shape)) for memory in (before, after))
        reasons.append(f"{len(different)} layers have other shapes, as the keys of layer {first}: {shapes}")
    return reasons
