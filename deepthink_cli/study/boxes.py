"""Combinations of the values of axes, as boxes: a box holds every combination of some values of each axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

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
