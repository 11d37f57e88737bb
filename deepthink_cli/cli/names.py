"""The names of an option: on the command line, and in the environment."""

from __future__ import annotations

import os
from typing import Any

_SHORT = {"model": "-m", "output": "-o"}
_OPTIONS = {"iteration": "at"}  # arguments of functions whose options have other names


def option_name(field: str) -> str:
    """The option of a field of a problem."""
    return _OPTIONS.get(field, field)


def flag(field: str, value: str | None = None) -> str:
    """An option as it is typed, with its value if there is one; T alone is `-T`."""
    if field == "iterations" and value is None:
        return "-T"
    name = _SHORT.get(field) or f"--{option_name(field).replace('_', '-')}"
    return name if value is None else f"{name} {value}"


PREFIX = "DEEPTHINK_"


def variable(name: str) -> str:
    """The variable of the environment that sets an option."""
    return f"{PREFIX}{name.upper()}"


def variables_of(parameter: Any) -> list[str]:
    """The variables of the environment that set an option, the one under its former name last."""
    return [parameter.envvar] if isinstance(parameter.envvar, str) else list(parameter.envvar or ())


def variable_used(parameter: Any) -> str:
    """The variable that sets an option now, or that would."""
    names = variables_of(parameter)
    return next((name for name in names if os.environ.get(name)), names[0] if names else "")
