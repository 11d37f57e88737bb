"""The selection methods by name, as task files, options and the command line use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticKnownError

from deepthink_cli.errors import InputError
from deepthink_cli.registry import Registry, instance_of
from deepthink_cli.selection import baselines
from deepthink_cli.selection.base import SelectionMethod

_BUILT_IN = {
    "random": SelectionMethod(baselines.uniform, "rows drawn uniformly", "the baseline of every table"),
    "stratified": SelectionMethod(
        baselines.stratified, "equal numbers of each label, drawn uniformly", "a usual baseline", balances=True
    ),
    "first": SelectionMethod(
        baselines.first, "the first rows, in the order of the file", "a usual baseline", in_file_order=True, draws=False
    ),
}
METHODS: Registry[SelectionMethod] = Registry("selections", _BUILT_IN, instance_of(SelectionMethod))


def selection_method(name: str, field: str = "sampling") -> SelectionMethod:
    """The method of this name; raises InputError for an unknown name, and, as `sampling`, if it needs a model."""
    names = without_model() if field == "sampling" else list(METHODS)
    if name not in names:
        raise InputError.of(field, name, f"use {_alternatives(names)}")
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
