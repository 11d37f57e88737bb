"""Several memories that answer together: `--ensemble` of predict and eval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepthink_cli.artifact.opening import OpenedMemory, check_memories, opened
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.events import Tell
from deepthink_cli.memory import Memory


def open_ensemble(
    memory: OpenedMemory, ensemble: Sequence[str | Path | OpenedMemory], iteration: int | str = "last"
) -> tuple[OpenedMemory, ...]:
    """The memories that are averaged with `memory`; raises InputError, all at once, for those that do not fit it."""
    others, problems = list[OpenedMemory](), Problems()
    for each in ensemble:
        with problems.collected():
            other = opened(each, iteration)
            _check_together(memory, other)
            if other.sha256 is not None and other.sha256 in {named.sha256 for named in (memory, *others)}:
                raise InputError.of("ensemble", other.name, "the same memory as another one; name each once")
            others.append(other)
    problems.raise_any()
    return tuple(others)


def members_of(others: Sequence[OpenedMemory], engine: Engine, tell: Tell) -> list[list[Memory]]:
    """The iterations of each memory, checked against the loaded model as `load_both` checks the first one."""
    members = []
    for other in others:
        memories = other.memories()
        check_memories(other, memories, engine, tell)
        members.append(memories)
    return members


def _check_together(memory: OpenedMemory, other: OpenedMemory) -> None:
    """Raise InputError, naming the difference, unless both answer the same questions."""
    ours, theirs = memory.provenance.demonstrations, other.provenance.demonstrations
    different = [
        *memory.provenance.model.differences(other.provenance.model),
        *(["template"] if ours.template != theirs.template else []),
        *(["labels"] if set(ours.labels) != set(theirs.labels) else []),
        *(["label words"] if ours.words != theirs.words else []),
        *(["chat"] if ours.chat != theirs.chat else []),
    ]
    if different:
        raise InputError.of(
            "ensemble",
            other.name,
            f"differs from {memory.name} in its {' and '.join(different)}; use memories of one model with the "
            "same template and labels",
        )
    if other.iterations != memory.iterations:
        raise InputError.of(
            "ensemble",
            other.name,
            f"its iterations are {_listed(other)}, those of {memory.name} {_listed(memory)}; choose one that "
            f"all have with {option('iteration')}",
        )


def _listed(memory: OpenedMemory) -> str:
    return ", ".join(map(str, memory.iterations))
