"""The update rules by name: a memory file contains the name of its rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import Gate

RULES: dict[str, type[Any]] = {
    "gate": Gate,
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
    """The rule of this name with these parameters.

    Raises InputError if this installation has no such rule, or the rule no such parameters.
    """
    if name not in RULES:
        raise InputError(f"update rule {name!r} is unknown here; the known ones are {', '.join(RULES)}")
    try:
        rule: UpdateRule = RULES[name](**values)
    except TypeError as error:
        raise InputError(f"update rule {name!r}: {error}") from error
    return rule
