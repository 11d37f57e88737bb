"""The techniques by name, as `think --method` and runs take them, with those that only repeat or reorder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError
from deepthink_cli.method import CT_KV, DEEP_THINKING
from deepthink_cli.provenance import Technique
from deepthink_cli.techniques.words import flipped, fresh


def repeated(demonstrations: DemonstrationSet, times: int) -> DemonstrationSet:
    """All demonstrations `times` times, block after block, each block in their order."""
    return replace(demonstrations, examples=demonstrations.examples * times)


def copies(technique: str | None) -> int:
    """How often a technique of this name reads every demonstration in one context: R for `repeat-R`, else 1."""
    match = re.fullmatch(r"repeat-(\d+)", technique or "")
    return 1 if match is None else int(match[1])


NAMES = f"{DEEP_THINKING}, {CT_KV}, repeat-R with R from 2 (as in repeat-5), flipped or fresh"
_NUMBER = re.compile(r"[2-9]|[1-9]\d{1,3}")


@dataclass(frozen=True)
class Control:
    """A change of the demonstrations before they are read, which can be combined with any number of readings.

    `parameter` names the number after the control's name, as in `repeat-5`, which `change` takes as well; it is None
    for a control without one.
    """

    change: Callable[..., DemonstrationSet]
    summary: str
    parameter: str | None = None


CONTROLS: dict[str, Control] = {
    "repeat": Control(repeated, "the demonstrations R times in the context", "R"),
    "flipped": Control(flipped, "every label word replaced by the next one"),
    "fresh": Control(fresh, "label words replaced by unrelated ones"),
}


def controlled(name: str, demonstrations: DemonstrationSet) -> tuple[DemonstrationSet, Technique | None]:
    """The demonstrations as the technique of this name reads them, and what a memory records of it.

    They stay as they are, and nothing is recorded here, for Deep-Thinking and for Context Tuning, which records its
    parameters itself. Raises InputError for an unknown name and for demonstrations that a control cannot change.
    """
    if not is_technique(name):
        raise InputError(f"--method {name}: use {NAMES}")
    if name in (DEEP_THINKING, CT_KV):
        return demonstrations, None
    kind, _, number = name.partition("-")
    arguments: list[Any] = [int(number)] if number else []
    changed = CONTROLS[kind].change(demonstrations, *arguments)
    return changed, Technique(name, words=dict(changed.words))


def first_reading(technique: Technique | None) -> str:
    """What T = 1 of a memory is, in words: plain in-context learning only without a technique."""
    if technique is None:
        return "plain in-context learning"
    return "one reading, then trained" if technique.name == CT_KV else f"one reading with {technique}"


def is_technique(name: str) -> bool:
    """Whether a technique has this name, including the number of a control that has one."""
    kind, dash, number = name.partition("-")
    control = CONTROLS.get(kind)
    if name in (DEEP_THINKING, CT_KV) or control is None:
        return name in (DEEP_THINKING, CT_KV)
    return bool(_NUMBER.fullmatch(number)) if control.parameter else not dash


_ENSEMBLE = re.compile(r"ensemble-([2-9]|[1-9]\d{1,2})")


def ensemble_size(name: str) -> int | None:
    """How many memories `ensemble-N` has; None for another technique."""
    match = _ENSEMBLE.fullmatch(name)
    return None if match is None else int(match[1])


def check_run_technique(name: str) -> str:
    """The name of a technique that a run may use; raises InputError for an unknown one."""
    if not is_technique(name) and ensemble_size(name) is None:
        raise InputError(f"--method {name}: use {NAMES}, or ensemble-N, N from 2")
    return name
