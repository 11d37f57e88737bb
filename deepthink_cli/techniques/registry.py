"""The techniques by name, as `think --technique` and runs take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from deepthink_cli.errors import InputError
from deepthink_cli.io.records import place, reason
from deepthink_cli.options import METHOD, Flag, Options, named_by
from deepthink_cli.provenance import RecordedTechnique
from deepthink_cli.registry import Registry, installed, name_and_parameters
from deepthink_cli.techniques.base import Technique, Trained

DEEP_THINKING = "deep-thinking"
_NUMBER = re.compile(r"0|[1-9]\d{0,3}")


class DeepThinking(Technique):
    """The demonstrations as they are, read T times: a memory and a row record no technique."""

    summary = "T readings with an update rule"
    source = "Yang et al. 2023, arXiv 2305.13016, section 3.1"
    cost = "T passes over L tokens"

    def recorded(self, words: object = None) -> RecordedTechnique | None:
        """None."""
        return None


def _check(name: str, kind: Any) -> type[Technique]:
    if not (isinstance(kind, type) and issubclass(kind, Technique)):
        raise TypeError("not a subclass of Technique")
    if missing := getattr(kind, "__abstractmethods__", ()):
        raise TypeError(f"lacks {', '.join(sorted(missing))}")
    return kind


TECHNIQUES: Registry[type[Technique]] = Registry("techniques", {DEEP_THINKING: DeepThinking}, _check)


def find(name: str) -> Technique | None:
    """The technique of this name, as in `repeat-5`; None for an unknown name."""
    kind = TECHNIQUES.get(name)
    if kind is not None and kind.parameter is None:
        return kind(name)
    family, _, number = name.rpartition("-")
    kind = TECHNIQUES.get(family)
    if kind is None or kind.parameter is None or not _NUMBER.fullmatch(number):
        return None
    return kind(name, int(number)) if kind.smallest <= int(number) <= kind.largest else None


def find_recorded(recorded: RecordedTechnique | str | None) -> Technique | None:
    """The technique in the record of a memory or a row, with its default parameters.

    None for Deep-Thinking alone, and for a technique that is not installed.
    """
    return None if recorded is None else find(str(recorded).partition(" ")[0])


def trains(recorded: RecordedTechnique | str | None) -> bool:
    """Whether the technique in the record of a memory or a row trains the memory of one reading."""
    return isinstance(find_recorded(recorded), Trained)


def technique_of(text: str, in_run: bool = False) -> Technique:
    """The technique that a text names, as `ct-kv` or `ct-kv:steps=50,lr=0.01`.

    Raises InputError for an unknown technique, for wrong parameters, and, unless `in_run`, for a technique that makes
    several memories.
    """
    found = find(text.partition(":")[0].strip())
    if found is None or (found.members > 1 and not in_run):
        raise InputError.of("technique", text, f"use {names(in_run)}")
    try:
        return _with(found, name_and_parameters(text)[1])
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError.of("technique", text, f"{place(first)}: {reason(first)}") from error
    except ValueError as error:
        raise InputError.of("technique", text, str(error)) from error


def _with(technique: Technique, parameters: Mapping[str, str]) -> Technique:
    """The technique with these parameters; raises ValueError for unknown parameters and wrong values."""
    own = [field.name for field in fields(technique) if field.name not in Technique.__dataclass_fields__]
    for name in parameters:
        if name not in own:
            known = f"its parameters are {', '.join(own)}" if own else "it has no parameters"
            raise ValueError(f"no parameter {name!r}; {known}")
    if not parameters:
        return technique
    kind: TypeAdapter[Technique] = TypeAdapter(type(technique))
    return kind.validate_python({**asdict(technique), **parameters})


def sample(family: str) -> Technique:
    """The technique of a registered name, with its smallest number, if any: `repeat-2` for `repeat`."""
    kind = TECHNIQUES[family]
    return kind(family) if kind.parameter is None else kind(f"{family}-{kind.smallest}", kind.smallest)


def samples(in_run: bool = False) -> list[Technique]:
    """A technique of every family that `think`, or with `in_run` a run, takes."""
    found = [sample(family) for family, _ in TECHNIQUES.items()]
    return [each for each in found if in_run or each.members == 1]


def names(in_run: bool = False) -> str:
    """The names that `think`, or with `in_run` a run, takes, for messages."""
    return ", ".join(
        each.family if each.parameter is None else f"{each.family} with {each.parameter} from {each.smallest}"
        for each in samples(in_run)
    )


def first_reading(recorded: RecordedTechnique | None) -> str:
    """The meaning of a memory's T = 1, in words: plain in-context learning only without a technique."""
    if recorded is None:
        return "plain in-context learning"
    return "one reading, then trained" if trains(recorded) else f"one reading with {recorded}"


def _described(techniques: Iterable[Technique]) -> str:
    return "; ".join(f"{each.family}: {each.summary}" for each in techniques)


_OTHERS = [each for each in map(sample, TECHNIQUES.own) if each.members == 1 and each.name != DEEP_THINKING]
_TRAINED = [each for each in _OTHERS if isinstance(each, Trained)]
_CONTROLS = [each for each in _OTHERS if each not in _TRAINED]


class TechniqueOptions(Options):
    """What makes a memory: Deep-Thinking or another technique, with its parameters."""

    technique: Annotated[
        str,
        named_by(technique_of),
        Flag(
            METHOD,
            f"{DEEP_THINKING}; {_described(_TRAINED)}; or a control, also with -T: "
            f"{_described(_CONTROLS)}{installed(TECHNIQUES)}.",
            "NAME[:PARAMETER=VALUE,...]",
            variable=False,
        ),
    ] = DEEP_THINKING

    @property
    def chosen(self) -> Technique:
        """The technique with its parameters."""
        return technique_of(self.technique)
