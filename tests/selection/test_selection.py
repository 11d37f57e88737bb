"""Selection methods: the rows that they choose, and how a new one is registered."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from helpers.tiny import tiny_task

from deepthink_cli.data.examples import Query
from deepthink_cli.errors import InputError
from deepthink_cli.selection.registry import METHODS, Choice, Pool, SelectionMethod, selection_method, without_model
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

LABELS = ("good", "fair", "bad")
POOL = [Query(f"text {number}", LABELS, LABELS[number % 3 if number < 24 else 0]) for number in range(30)]


def chosen(method: str, shots: int, seed: int = 0) -> list[int]:
    """The numbers of the rows that a method chooses."""
    return list(METHODS[method](Pool(POOL), shots, random.Random(seed)).rows)


@pytest.mark.parametrize("method", without_model())
@pytest.mark.parametrize("shots", [3, 7, 29, 30])
def test_every_method_chooses_that_many_different_rows(method: str, shots: int) -> None:
    assert len(set(chosen(method, shots))) == shots
    assert chosen(method, shots) == chosen(method, shots)


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        ("random", [[27, 12, 24, 13, 1, 8, 16], [4, 18, 27, 25, 24, 2, 8]]),
        ("stratified", [[23, 20, 12, 24, 17, 19, 1], [4, 3, 8, 14, 19, 21, 7]]),
        ("first", [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]]),
    ],
)
def test_what_a_seed_chooses_does_not_change(method: str, rows: list[list[int]]) -> None:
    assert [chosen(method, 7, seed) for seed in (0, 1)] == rows


def test_stratified_takes_equal_numbers_of_each_label_and_the_remainder_from_all() -> None:
    counts = Counter(POOL[number].gold for number in chosen("stratified", 8))
    assert sorted(counts.values()) in ([2, 2, 4], [2, 3, 3])


def test_stratified_refuses_fewer_shots_than_labels() -> None:
    with pytest.raises(InputError, match=r"shots 2: stratified .* use at least 3, or draw at random"):
        chosen("stratified", 2)


def last(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """A new method: the last rows."""
    return Choice(range(len(pool))[-shots:], ordered=True)


def test_a_registered_method_works_in_options_and_task_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = tiny_task(tmp_path, sampling="last")
    with pytest.raises(InputError, match=r"sampling: use random, stratified or first"):
        find_task(str(path))
    with pytest.raises(InputError, match=r"sampling last: use random, stratified or first"):
        selection_method("last")
    monkeypatch.setitem(METHODS, "last", SelectionMethod(last, "the last rows", "this test"))
    task = find_task(str(path))
    drawn = draw_demonstrations(task, evaluation_set(task, "paper", Source(data)))
    assert [example.text for example in drawn.demonstrations.examples] == [
        f"a {word} play {number}" for word, number in (("stale", 16), ("mean", 17), ("dull", 18), ("lifeless", 19))
    ]
