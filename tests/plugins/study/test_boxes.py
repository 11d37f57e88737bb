"""The boxes of a study hold the combinations of its axes, less the excluded ones, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deepthink_cli.plugins.study.crossing import Box, count, split, without

AXES = ("models", "shots", "tasks", "etas")
Exclusion = Mapping[str, tuple[int, ...]]


@st.composite
def crossings(draw: st.DrawFn) -> tuple[Box, list[Exclusion]]:
    """Axes of one to four values each, and exclusions of some values of some of them."""
    box = {axis: tuple(range(draw(st.integers(1, 4)))) for axis in AXES}
    excluded = st.dictionaries(
        st.sampled_from(AXES), st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), min_size=1
    )
    return box, draw(st.lists(excluded, max_size=4))


def combinations(box: Box) -> Iterator[tuple[Any, ...]]:
    return product(*(box[axis] for axis in AXES))


def brute_force(box: Box, exclusions: Sequence[Exclusion]) -> set[tuple[Any, ...]]:
    def is_excluded(values: tuple[Any, ...]) -> bool:
        of_axis = dict(zip(AXES, values, strict=True))
        return any(all(of_axis[axis] in gone for axis, gone in each.items()) for each in exclusions)

    return {values for values in combinations(box) if not is_excluded(values)}


@given(crossings())
def test_the_boxes_are_the_product_less_the_exclusions(crossing: tuple[Box, list[Exclusion]]) -> None:
    box, exclusions = crossing
    boxes = [box]
    for excluded in exclusions:
        boxes = without(boxes, excluded)
    held = Counter(values for each in boxes for values in combinations(each))
    assert set(held) == brute_force(box, exclusions)
    assert set(held.values()) <= {1}
    assert sum(map(count, boxes)) == len(held)


@given(crossings())
def test_splitting_keeps_every_combination_and_leaves_single_values(crossing: tuple[Box, list[Exclusion]]) -> None:
    box, _ = crossing
    parts = list(split(box, ["shots", "models"]))
    assert all(len(part["shots"]) == len(part["models"]) == 1 for part in parts)
    assert sorted(values for part in parts for values in combinations(part)) == sorted(combinations(box))
