"""The selection methods by name, as task files, options and the command line use them, and those without a model."""

from __future__ import annotations

import random
from typing import Annotated

from deepthink_cli.errors import InputError
from deepthink_cli.options import named_by
from deepthink_cli.registry import Registry, instance_of
from deepthink_cli.selection.base import Choice, Pool, SelectionMethod


def first(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the first rows, in their order, independently of the seed."""
    return Choice(range(shots), ordered=True)


def uniform(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw rows without replacement, each with the same probability, in random order."""
    return Choice(draw.sample(range(len(pool)), shots), ordered=True)


def stratified(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw `shots // labels` rows of each label, the remainder from all other rows, and shuffle them.

    A label with fewer rows contributes all of them. Raises InputError for fewer shots than labels.
    """
    by_label, chosen = pool.by_label, list[int]()
    if len(by_label) > shots:
        raise InputError.of(
            "shots",
            shots,
            f"stratified sampling needs a row of each of the {len(by_label)} labels; use at least "
            f"{len(by_label)}, or draw at random",
        )
    for rows in by_label.values():
        chosen += draw.sample(rows, min(shots // len(by_label), len(rows)))
    taken = set(chosen)
    chosen += draw.sample([row for row in range(len(pool)) if row not in taken], shots - len(chosen))
    draw.shuffle(chosen)
    return Choice(chosen, ordered=True)


_BUILT_IN = {
    "random": SelectionMethod(uniform, "rows drawn uniformly", "the baseline of every table"),
    "stratified": SelectionMethod(
        stratified, "equal numbers of each label, drawn uniformly", "a usual baseline", balances=True
    ),
    "first": SelectionMethod(
        first, "the first rows, in the order of the file", "a usual baseline", in_file_order=True, draws=False
    ),
}
METHODS: Registry[SelectionMethod] = Registry("selections", _BUILT_IN, instance_of(SelectionMethod))


def selection_method(name: str, field: str = "sampling") -> SelectionMethod:
    """The method of this name; raises InputError for an unknown name, and, as `sampling`, if it needs a model."""
    names = without_model() if field == "sampling" else list(METHODS)
    if name not in names:
        *others, last = names
        raise InputError.of(field, name, f"use {', '.join(others)} or {last}")
    return METHODS[name]


def without_model() -> list[str]:
    """The names of the methods that need no model."""
    return [name for name, method in METHODS.items() if not method.reads]


Sampling = Annotated[str, named_by(selection_method)]
"""The name of a registered selection method that needs no model, validated by pydantic."""
