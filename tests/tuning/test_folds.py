"""Folds: every row once, labels spread evenly, equal inputs together."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from deepthink_cli.data.same_input import split
from deepthink_cli.tuning.nested import held_out

LABELS = ["a"] * 7 + ["b"] * 5 + ["c"] * 4
INPUTS = list(range(len(LABELS)))


@pytest.mark.parametrize("count", [3, 5, 16])
def test_every_row_is_in_one_fold_and_folds_and_labels_are_even(count: int) -> None:
    folds = split(LABELS, INPUTS, count, seed=1)
    assert sorted(chain(*folds)) == list(range(16))
    sizes = [len(fold) for fold in folds]
    assert (len(folds), max(sizes) - min(sizes) <= 1) == (count, True)
    for label in "abc":
        of_label = [Counter(LABELS[row] for row in fold)[label] for fold in folds]
        assert max(of_label) - min(of_label) <= 1


def test_rows_of_the_same_input_are_held_out_together() -> None:
    inputs = [*INPUTS[:14], INPUTS[0], INPUTS[8]]
    for seed in range(5):
        fold_of = {row: number for number, fold in enumerate(split(LABELS, inputs, 14, seed)) for row in fold}
        assert fold_of[14] == fold_of[0]
        assert fold_of[15] == fold_of[8]
        assert len(set(fold_of.values())) == 14


def test_a_seed_divides_always_alike_and_another_differently() -> None:
    assert split(LABELS, INPUTS, 5, seed=3) == split(LABELS, INPUTS, 5, seed=3) != split(LABELS, INPUTS, 5, seed=4)


def test_every_fold_and_every_pair_is_held_out() -> None:
    assert held_out(3) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
