"""Options as they are typed."""

from __future__ import annotations

_SHORT = {"model": "-m", "output": "-o"}


def flag(field: str, value: str | None = None) -> str:
    """An option as it is typed, with its value if there is one; T alone is `-T`."""
    if field == "iterations" and value is None:
        return "-T"
    name = _SHORT.get(field) or f"--{field.replace('_', '-')}"
    return name if value is None else f"{name} {value}"
