"""Several memories as one, whose parts were read alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.format import Header
from deepthink_cli.artifact.opening import OpenedMemory, find_its_model, open_memory
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.provenance import Drift, Provenance, RecordedTechnique, TokenizedDemonstrations
from deepthink_cli.techniques.controls import COMPOSED, check_composed

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

_ALIKE: dict[str, Callable[[OpenedMemory], Any]] = {  # properties that composed memories must share
    "model": lambda memory: memory.provenance.model,
    "template": lambda memory: memory.provenance.demonstrations.template,
    "labels": lambda memory: memory.provenance.demonstrations.labels,
    "T, update rule or positions": lambda memory: memory.provenance.method,
    "kept iterations": lambda memory: memory.kept,
}


def compose(memories: Sequence[str | Path], output: str | Path, tell: Tell = silent) -> Header:
    """Write the memories of two or more files as one: the keys and values of the first, then those of the next.

    Every file is a part that was read alone; the parts of a composed file are parts of the whole. A correction and
    thresholds belong to one part; they are omitted, each with a note. The drift of an iteration is the mean of the
    parts' drifts, weighted by tokens. The model's weights are not read.

    Raises InputError for a damaged file, for memories that differ in a property of `_ALIKE`, for a memory of another
    technique or of a conversation, for a model that cannot use them together, and for an output that cannot be written.
    """
    from deepthink_cli.artifact.files import save_memory

    opened = [open_memory(path, "all") for path in memories]
    _check(opened)
    whole = _provenance([each.provenance for each in opened])
    check_composed(find_its_model(opened[0], None, tell), whole.demonstrations)
    for each in opened:
        for what in _of_one_part(each.provenance):
            tell(
                Note(f"left out, since of one part: the {what} of {each.name}; store it again with deepthink calibrate")
            )
    composed = [_joined(each, whole) for each in zip(*(each.memories() for each in opened), strict=True)]
    return save_memory(composed, output)


def _of_one_part(origin: Provenance) -> list[str]:
    """The names of stored corrections of a part that the whole does not have."""
    stored = {
        f"{origin.calibrated and origin.calibrated.method} correction": origin.calibrated,
        "thresholds": origin.thresholds,
    }
    return [what for what, value in stored.items() if value is not None]


def _check(opened: Sequence[OpenedMemory]) -> None:
    if len(opened) < 2:
        raise InputError("compose: give two memories or more")
    for each in opened:
        technique = each.provenance.technique
        if technique is not None and technique.name != COMPOSED:
            raise InputError(f"{each.name}: made by {technique}; compose memories of Deep-Thinking, or composed ones")
        if each.provenance.demonstrations.chat is not None:
            raise InputError(f"{each.name}: its demonstrations are turns of a conversation, which cannot be composed")
        for what, of in _ALIKE.items():
            if of(each) != of(opened[0]):
                raise InputError(
                    f"{each.name}: other {what} than {opened[0].name}; make both with the same ones (deepthink inspect)"
                )


def _provenance(origins: Sequence[Provenance]) -> Provenance:
    """The provenance of the whole: all demonstrations, and the task and the seed that the parts have in common."""
    sets = [each.demonstrations for each in origins]
    demonstrations = TokenizedDemonstrations(
        tuple(chain.from_iterable(each.examples for each in sets)),
        sets[0].template,
        sets[0].labels,
        tuple(chain.from_iterable(each.token_ids for each in sets)),
        parts=tuple(chain.from_iterable(each.parts or (len(each.token_ids),) for each in sets)),
    )
    task, seed = ({getattr(each, name) for each in origins} for name in ("task", "seed"))
    return Provenance(
        origins[0].model,
        demonstrations,
        origins[0].method,
        task.pop() if len(task) == 1 else None,
        seed.pop() if len(seed) == 1 else None,
        technique=RecordedTechnique(COMPOSED),
    )


def _joined(parts: Sequence[Memory], provenance: Provenance) -> Memory:
    """One iteration of the whole."""
    lengths = [part.length for part in parts]

    def mean(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
        return tuple(fmean(layer, lengths) for layer in zip(*values, strict=True))

    drift = tuple(
        Drift(mean([each.keys for each in of_parts]), mean([each.values for each in of_parts]))
        for of_parts in zip(*(part.drift for part in parts), strict=True)
    )
    return replace(parts[0].followed_by(*parts[1:]), drift=drift, provenance=provenance)
