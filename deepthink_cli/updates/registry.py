"""The update rules by name: a memory file contains the name of its rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from deepthink_cli.errors import InputError
from deepthink_cli.io.mistakes import place, reason
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import Gate
from deepthink_cli.updates.layers import LayerRamp, LayerRange, LowerHalf, UpperHalf
from deepthink_cli.updates.orders import Rotated, Shuffled
from deepthink_cli.updates.parts import KeysOnly, ValuesOnly
from deepthink_cli.updates.schedules import Cosine, InverseTime

GATE = "gate"
RULES: dict[str, type[Any]] = {
    GATE: Gate,
    "keys-only": KeysOnly,
    "values-only": ValuesOnly,
    "layer-ramp": LayerRamp,
    "layer-range": LayerRange,
    "lower-half": LowerHalf,
    "upper-half": UpperHalf,
    "inverse-time": InverseTime,
    "cosine": Cosine,
    "rotated": Rotated,
    "shuffled": Shuffled,
}


def name_of(rule: UpdateRule) -> str:
    """The name of a rule; raises InputError for one that is not registered."""
    for name, kind in RULES.items():
        if type(rule) is kind:
            return name
    raise InputError(f"{type(rule).__name__}: not a registered update rule; add it to deepthink_cli.updates.registry")


def values_of(rule: UpdateRule) -> dict[str, Any]:
    """The parameters of a rule by name."""
    return asdict(rule)  # type: ignore[call-overload, no-any-return]


def rule_of(name: str, values: Mapping[str, Any]) -> UpdateRule:
    """The rule of this name with these parameters; numbers may be texts.

    Raises InputError if this installation has no such rule, or the rule no such parameters or values.
    """
    if name not in RULES:
        raise InputError(f"update rule {name!r} is unknown here; the known ones are {', '.join(RULES)}")
    parameters = [field.name for field in fields(RULES[name])]
    for parameter in values:
        if parameter not in parameters:
            known = f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters"
            raise InputError(f"update rule {name!r}: no parameter {parameter!r}; {known}")
    kind: Any = RULES[name]
    try:
        rule: UpdateRule = _adapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"update rule {name!r}: {place(first)}: {reason(first)}") from error
    return rule


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
