"""What differs between two memories: where they come from, their keys and values, and the labels that they give."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.format import Artifact
from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines
from deepthink_cli.artifact.opening import OpenedMemory, model_options, opened
from deepthink_cli.data.examples import Example
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.memories.labels import (
    ComparedLabels,
    RowsFor,
    compare_labels,
    not_comparable,
)
from deepthink_cli.provenance import Provenance

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from deepthink_cli.memory import Memory


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
    """Compare the layers whose keys and values have equal shapes, or None; also the reasons against other layers."""
    import torch

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
    import torch

    from deepthink_cli.memory import PARTS

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
    """The reasons why layers are not compared, one line for each."""
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


@dataclass(frozen=True)
class SharedDemonstrations:
    """The numbers of demonstrations that two memories share, and that only one of them has."""

    both: int
    only_before: int
    only_after: int
    same_order: bool


@dataclass(frozen=True)
class MemoryDiff:
    """The differences between memory A, `before`, and memory B, `after`.

    `provenance` has pairs of different facts, by name; `model` has the parts in which the models differ. `tensors` is
    None if no keys and values have equal shapes. `not_compared` has the reasons why tensors, layers or labels are not
    compared. `tokens` are the texts of A's tokens; None without the tokenizer. `labels` is None unless rows were given
    and both memories could label them.
    """

    before: OpenedMemory
    after: OpenedMemory
    provenance: dict[str, tuple[str | None, str | None]]
    model: tuple[str, ...]
    demonstrations: SharedDemonstrations
    tensors: TensorChanges | None
    tokens: tuple[str, ...] | None
    labels: ComparedLabels | None
    not_compared: tuple[str, ...]


def diff(
    before: str | Path | OpenedMemory,
    after: str | Path | OpenedMemory,
    rows: RowsFor | None = None,
    *,
    options: ModelOptions | None = None,
    tell: Tell = silent,
) -> MemoryDiff:
    """Compare two memories, of one iteration each; with `rows`, also the labels that they give.

    Args:
        before: memory A: a file, whose last iteration is compared, or the result of `open_memory`.
        after: memory B, in the same way.
        rows: reads the rows for a memory, as `rows_of_file` and `rows_of_task` do; without it no weights are loaded.
        options: how to load the model that made them; unset options are taken from memory A.
        tell: called with every event.

    Raises InputError for a damaged file, and for rows or a model that do not fit.
    """
    before, after = opened(before), opened(after)
    (first,), (second,) = before.memories(), after.memories()
    tensors, reasons = tensor_changes(first, second)
    labels, why = None, None if rows is None else not_comparable(before, after)
    if rows is not None and why is None:
        labels = compare_labels(before, after, rows, options, tell)
    ours, theirs = before.provenance, after.provenance
    return MemoryDiff(
        before=before,
        after=after,
        provenance=_differences(before, after),
        model=tuple(ours.model.differences(theirs.model)),
        demonstrations=_shared(ours, theirs),
        tensors=tensors,
        tokens=None if tensors is None else token_texts(before, options, tell),
        labels=labels,
        not_compared=(*reasons, *([f"labels: {why}"] if why else [])),
    )


def token_texts(memory: OpenedMemory, options: ModelOptions | None, tell: Tell) -> tuple[str, ...] | None:
    """The texts of a memory's tokens, by the tokenizer on this machine; None, with a note, if it is not here."""
    made_by, ids = memory.provenance.model, memory.provenance.demonstrations.token_ids
    try:
        spec = open_model(model_options(memory, options).model_copy(update={"offline": True}))
    except InputError as error:
        tell(Note(f"tokens are shown by their ids: {error.messages[0]}"))
        return None
    except DeepThinkError:  # of the hub, which was not asked
        tell(Note(f"tokens are shown by their ids: {made_by.id}, the model of {memory.name}, is not on this machine"))
        return None
    if spec.tokenizer_sha256 != made_by.tokenizer_sha256:
        tell(Note(f"tokens are shown by their ids: the tokenizer of {spec.id} is not that of {memory.name}"))
        return None
    return tuple(str(spec.tokenizer.decode([number])) for number in ids)


def _differences(before: OpenedMemory, after: OpenedMemory) -> dict[str, tuple[str | None, str | None]]:
    """What is said of each memory, by name, where that differs."""
    ours, theirs = _described(before), _described(after)
    pairs = {name: (ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _described(memory: OpenedMemory) -> dict[str, str]:
    provenance, method, read = memory.provenance, memory.provenance.method, memory.provenance.demonstrations
    lines = {
        **origin_lines(provenance, method_text(method.iterations, str(method.update), method.positions)),
        "demonstrations": f"{len(read.examples)}, L = {len(read.token_ids)} tokens",
        **prompt_lines(read.labels, read.template, read.chat),
        "iteration": f"{memory.iterations[-1]} of {', '.join(map(str, memory.kept))}",
    }
    if isinstance(memory.source, Artifact):
        versions = memory.source.header.metadata.versions
        lines |= {"versions": ", ".join(f"{name} {number}" for name, number in versions.items())}
    return lines


def _shared(before: Provenance, after: Provenance) -> SharedDemonstrations:
    ours, theirs = before.demonstrations.examples, after.demonstrations.examples
    counts = Counter(map(_key, ours)), Counter(map(_key, theirs))
    both = (counts[0] & counts[1]).total()
    return SharedDemonstrations(both, len(ours) - both, len(theirs) - both, ours == theirs)


def _key(example: Example) -> tuple[Any, str]:
    text = example.text
    return (text if isinstance(text, str) else tuple(sorted(text.items()))), example.label
