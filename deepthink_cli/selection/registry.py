"""The selection methods by name, as task files, options and the command line use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticKnownError

from deepthink_cli.errors import InputError
from deepthink_cli.selection import first, stratified, uniform
from deepthink_cli.selection.base import SelectionMethod

METHODS: dict[str, SelectionMethod] = {
    "random": uniform.choose,
    "stratified": stratified.choose,
    "first": first.choose,
}


def selection_method(name: str) -> SelectionMethod:
    """The method of this name; raises InputError for an unknown one."""
    if name not in METHODS:
        raise InputError(f"--sampling {name}: use {_alternatives(METHODS)}")
    return METHODS[name]


def _alternatives(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _known(name: Any) -> Any:
    if not isinstance(name, str) or name not in METHODS:
        raise PydanticKnownError("literal_error", {"expected": _alternatives(map(repr, METHODS))})
    return name


Sampling = Annotated[str, BeforeValidator(_known)]
"""The name of a registered selection method, validated by pydantic."""
