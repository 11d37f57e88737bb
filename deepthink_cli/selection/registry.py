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
    "random": SelectionMethod(uniform.choose, "rows drawn uniformly", "the baseline of every table"),
    "stratified": SelectionMethod(
        stratified.choose, "equal numbers of each label, drawn uniformly", "a usual baseline", balances=True
    ),
    "first": SelectionMethod(
        first.choose, "the first rows, in the order of the file", "a usual baseline", in_file_order=True
    ),
}


def selection_method(name: str, option: str = "--sampling") -> SelectionMethod:
    """The method of this name; raises InputError for an unknown one."""
    if name not in METHODS:
        raise InputError(f"{option} {name}: use {_alternatives(METHODS)}")
    return METHODS[name]


def without_model() -> list[str]:
    """The names of the methods that need no model."""
    return [name for name, method in METHODS.items() if not method.reads]


def _alternatives(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _known(name: Any) -> Any:
    if not isinstance(name, str) or name not in without_model():
        raise PydanticKnownError("literal_error", {"expected": _alternatives(map(repr, without_model()))})
    return name


Sampling = Annotated[str, BeforeValidator(_known)]
"""The name of a registered selection method that needs no model, validated by pydantic."""
