"""The axes of an experiment: their values, and boxes of combinations of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.format import Task
from deepthink_cli.updates.registry import checked_rule

Values = tuple[Any, ...]
Box = Mapping[str, Values]


def without(boxes: Iterable[Box], excluded: Mapping[str, Values]) -> list[Box]:
    """Boxes that hold, each once, the combinations of `boxes` which do not have an excluded value in every such axis.

    An axis that `excluded` does not name is excluded with all its values.
    """
    return [rest for box in boxes for rest in _rest(box, excluded)]


def _rest(box: Box, excluded: Mapping[str, Values]) -> Iterator[Box]:
    """The box less the excluded one: at most one box for each axis that `excluded` names, in the order of the axes."""
    if not overlaps(box, excluded):
        yield box
        return
    inner = dict(box)
    for axis in (axis for axis in box if axis in excluded):
        outside = tuple(value for value in inner[axis] if value not in excluded[axis])
        if outside:
            yield {**inner, axis: outside}
        inner[axis] = tuple(value for value in inner[axis] if value in excluded[axis])


def overlaps(box: Box, other: Mapping[str, Values]) -> bool:
    """Whether some combination of the box has a value of `other` in every axis that `other` names."""
    return all(any(value in values for value in box[axis]) for axis, values in other.items())


def split(box: Box, axes: Iterable[str]) -> Iterator[Box]:
    """Boxes with a single value in each of these axes, in the order of the values."""
    names = list(axes)
    for values in product(*(box[axis] for axis in names)):
        yield {**box, **{axis: (value,) for axis, value in zip(names, values, strict=True)}}


def meet(first: Box, second: Box, axes: Iterable[str]) -> bool:
    """Whether two boxes have a value in common in each of these axes."""
    return overlaps(first, {axis: second[axis] for axis in axes})


def count(box: Box) -> int:
    """The number of combinations in a box."""
    return prod(map(len, box.values()))


MAX_LISTED = 8  # values that a message lists

Tasks = Mapping[str, Sequence[Task]]  # the tasks by the value of the axis: one of the catalogue, or those of a file


def shown(value: object) -> str:
    """A value as text: a model by its options, null for the task's own."""
    if isinstance(value, ModelOptions):
        changed = value.model_dump(exclude_defaults=True, exclude={"model"})
        return value.model if not changed else f"{value.model} with {', '.join(f'{k} {v}' for k, v in changed.items())}"
    return "null" if value is None else str(value)


def listed(values: Sequence[object]) -> str:
    """The first values of an axis as text."""
    return ", ".join([*map(shown, values[:MAX_LISTED]), *(["..."] if len(values) > MAX_LISTED else [])])


def matching(axis: str, written: Any, values: Sequence[Any], tasks: Tasks) -> list[Any]:
    """The values of an axis that an exclusion names: equal ones, models by their id, tasks also by their group."""
    if axis == "tasks":
        names = {written}
        with suppress(InputError):
            names |= {task.name for task in find_tasks([str(written)])} if not _is_file(written) else set()
        return [value for value in values if value in names or {task.name for task in tasks[value]} <= names]
    if axis == "models" and isinstance(written, str):
        return [value for value in values if value.model == written]
    if axis == "models" and isinstance(written, dict):
        return [value for value in values if all(getattr(value, name, None) == each for name, each in written.items())]
    if axis == "updates":
        with suppress(ValueError):
            written = checked_rule(written)
    return [value for value in values if value == written and isinstance(written, bool) == isinstance(value, bool)]


def _is_file(name: object) -> bool:
    return str(name).endswith((".yaml", ".yml"))
