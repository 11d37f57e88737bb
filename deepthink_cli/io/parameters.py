"""Names with parameters, as options and files write them: NAME:PARAMETER=VALUE,..., and lists of them."""

from __future__ import annotations

from typing import Any


def split(text: Any) -> Any:
    """The names, with their parameters, in a list separated by commas; a value that is not a text stays as it is.

    A part with `=` but without `:` is a parameter of the name before it.
    """
    if not isinstance(text, str):
        return text
    names: list[str] = []
    for part in map(str.strip, text.split(",")):
        if names and ":" in names[-1] and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def parts(text: str) -> tuple[str, dict[str, str]]:
    """The name and the parameters of a text; raises ValueError for a text that is not NAME or NAME:PARAMETER=VALUE."""
    name, colon, rest = text.strip().partition(":")
    parameters = dict[str, str]()
    for part in rest.split(",") if colon else ():
        parameter, equals, value = (piece.strip() for piece in part.partition("="))
        if not (parameter and equals and value) or parameter in parameters:
            raise ValueError("write NAME:PARAMETER=VALUE,..., each parameter once")
        parameters[parameter] = value
    return name.strip(), parameters
