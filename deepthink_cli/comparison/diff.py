"""What differs between two memories: where they come from, their keys and values, and the labels that they give."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.artifact.format import Artifact
from deepthink_cli.artifact.opening import OpenedMemory, model_options, opened
from deepthink_cli.comparison.labels import ComparedLabels, RowsFor, compare_labels, not_comparable
from deepthink_cli.comparison.tensors import TensorChanges, tensor_changes
from deepthink_cli.data.examples import Example
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.provenance import Provenance, provenance_lines


@dataclass(frozen=True)
class SharedDemonstrations:
    """How many demonstrations two memories share, and how many only one of them has."""

    both: int
    only_before: int
    only_after: int
    same_order: bool


@dataclass(frozen=True)
class MemoryDiff:
    """What differs from memory A, `before`, to memory B, `after`.

    `provenance` holds what is said of each, by name, where that differs, and `model` the parts in which the models
    differ. `tensors` is None if no keys and values have equal shapes; `not_compared` says why they, or some layers, or
    labels are not compared. `tokens` are the texts of A's tokens, None without the tokenizer. `labels` is None unless
    rows were given and could be labelled by both.
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
    lines = {
        **provenance_lines(memory.provenance),
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
