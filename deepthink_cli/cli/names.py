"""The names of an option: on the command line, and in the environment."""

from __future__ import annotations

_SHORT = {"model": "-m", "output": "-o"}
_OPTIONS = {"iteration": "at"}  # arguments of functions whose options have other names


def option_name(field: str) -> str:
    """The option of a field of a problem."""
    return _OPTIONS.get(field, field)


def flag(field: str, value: str | None = None) -> str:
    """An option as it is typed, with its value, if any; T alone is `-T`."""
    if field == "iterations" and value is None:
        return "-T"
    name = _SHORT.get(field) or f"--{option_name(field).replace('_', '-')}"
    return name if value is None else f"{name} {value}"


PREFIX = "DEEPTHINK_"


def variable(name: str) -> str:
    """The variable of the environment that sets an option."""
    return f"{PREFIX}{name.upper()}"
