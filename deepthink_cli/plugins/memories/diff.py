"""What differs between two memories: where they come from, their keys and values, and the labels that they give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.format import Artifact
from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines, versions_line
from deepthink_cli.artifact.opening import OpenedMemory, opened
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.memories.labels import ComparedLabels, RowsFor, compare_labels, not_comparable

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.memory import Memory


@dataclass(frozen=True)
class Change:
    """Relative change |B - A| / |A| of keys and of values; infinite where A is zero and B is not."""

    keys: float
    values: float


@dataclass(frozen=True)
class TensorChanges:
    """The changes of all tensors together, and of each layer."""

    whole: Change
    layers: tuple[Change, ...]


def tensor_changes(before: Memory, after: Memory) -> TensorChanges | None:
    """Compare two memories; None if their keys and values have other shapes."""
    import torch

    def shapes(memory: Memory) -> list[torch.Size]:
        return [tensor.shape for tensor in (*memory.keys, *memory.values)]

    if shapes(before) != shapes(after):
        return None
    squares = torch.stack([_squares(before, after, layer) for layer in range(len(before.keys))])
    return TensorChanges(_change(squares.sum(0)), tuple(map(_change, squares)))


def _squares(before: Memory, after: Memory, layer: int) -> Tensor:
    """Sums of squares, float64 (2, 2): of keys and values, of the difference and of A's own."""
    import torch

    from deepthink_cli.memory import PARTS

    pairs = [(getattr(before, part)[layer].double(), getattr(after, part)[layer].double()) for part in PARTS]
    return torch.stack([torch.stack([each.square().sum() for each in (new - old, old)]) for old, new in pairs])


def _change(squares: Tensor) -> Change:
    """The change that sums of squares (2, 2) stand for."""
    moved, norms = squares.sqrt().T
    return Change(*(moved / norms).nan_to_num(nan=0.0, posinf=float("inf")).tolist())


@dataclass(frozen=True)
class MemoryDiff:
    """The differences between memory A, `before`, and memory B, `after`.

    `provenance` has pairs of different facts, by name; `model` has the parts in which the models differ. `tensors` is
    None if keys and values have other shapes. `labels` is None unless rows were given and both memories could label
    them; `not_labelled` says why they could not.
    """

    before: OpenedMemory
    after: OpenedMemory
    provenance: dict[str, tuple[str | None, str | None]]
    model: tuple[str, ...]
    tensors: TensorChanges | None
    labels: ComparedLabels | None
    not_labelled: str | None


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
    why = None if rows is None else not_comparable(before, after)
    ours, theirs = before.provenance, after.provenance
    return MemoryDiff(
        before=before,
        after=after,
        provenance=_differences(before, after),
        model=tuple(ours.model.differences(theirs.model)),
        tensors=tensor_changes(first, second),
        labels=None if rows is None or why else compare_labels(before, after, rows, options, tell),
        not_labelled=why,
    )


def _differences(before: OpenedMemory, after: OpenedMemory) -> dict[str, tuple[str | None, str | None]]:
    """What is said of each memory, by name, where that differs."""
    ours, theirs = _described(before), _described(after)
    pairs = {name: (ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _described(memory: OpenedMemory) -> dict[str, str]:
    provenance, method, read = memory.provenance, memory.provenance.method, memory.provenance.demonstrations
    source = memory.source
    return {
        **origin_lines(provenance, method_text(method.iterations, str(method.update), method.positions)),
        "demonstrations": f"{len(read.examples)}, L = {len(read.token_ids)} tokens, sha256 {read.sha256[:12]}",
        **prompt_lines(read.labels, read.template, read.chat),
        "iteration": f"{memory.iterations[-1]} of {', '.join(map(str, memory.kept))}",
        **(versions_line(source.header.metadata.versions) if isinstance(source, Artifact) else {}),
    }
