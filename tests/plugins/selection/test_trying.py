"""Methods that try sets of rows, each against its definition."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice, permutations

import numpy as np
import pytest
from helpers.fake_trials import FakeTrials, fake_pool

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.selection.orders import global_entropy, local_entropy
from deepthink_cli.plugins.selection.random_sets import accuracies, dev_rows, random_sets
from deepthink_cli.selection.base import Choice, Pool, SelectionMethod
from deepthink_cli.selection.choice import Request, choose_demonstrations
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import METHODS

TRYING = [name for name, method in METHODS.items() if "trials" in method.reads]


def chosen(method: str, pool: Pool, shots: int, seed: int = 0) -> list[int]:
    """The rows that a method chooses."""
    return [int(row) for row in METHODS[method](pool, shots, random.Random(seed)).rows]


def sets_of(trials: FakeTrials, shots: int) -> list[tuple[int, ...]]:
    """The different sets of so many rows that were tried, in order."""
    return list(dict.fromkeys(each for each, _ in trials.tried if len(each) == shots))


@pytest.mark.parametrize("method", TRYING)
@pytest.mark.parametrize("shots", [1, 4, 11])
def test_every_method_chooses_that_many_different_rows_and_the_same_for_a_seed(method: str, shots: int) -> None:
    pool, _ = fake_pool(12)
    assert len(set(chosen(method, pool, shots))) == shots
    assert chosen(method, pool, shots, seed=5) == chosen(method, pool, shots, seed=5)


@pytest.mark.parametrize("method", TRYING)
@pytest.mark.parametrize("shots", [3, 7])
def test_a_balanced_pool_gives_every_label_its_share(method: str, shots: int) -> None:
    pool, _ = fake_pool(20, balanced=True)
    counts = Counter(str(pool.rows[row].gold) for row in chosen(method, pool, shots))
    assert counts == pool.shares(shots)


@pytest.mark.parametrize("method", [name for name in TRYING if "entropy" not in name])
def test_a_pool_without_other_rows_cannot_be_tried(method: str) -> None:
    pool, _ = fake_pool(4)
    with pytest.raises(InputError, match=r"shots 4: the pool has 4 different rows, and none is left to try sets on"):
        chosen(method, pool, 4)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("shots", [3, 5, 9])
def test_all_rows_occur_equally_often_in_random_sets(balanced: bool, shots: int) -> None:
    pool, _ = fake_pool(9, balanced=balanced)
    sets = list(islice(random_sets(pool, shots, random.Random(1)), 36))
    assert all(len(set(each)) == shots for each in sets)
    counts = Counter(row for each in sets for row in each)
    for rows in pool.by_label.values() if balanced else [range(9)]:
        assert max(counts[row] for row in rows) - min(counts[row] for row in rows) <= 1


def test_accuracy_is_measured_on_rows_outside_the_set() -> None:
    pool, trials = fake_pool(10)
    sets, rows = [[0, 1, 2], [7, 3, 0]], [0, 2, 4, 6, 8]
    expected = [trials.accuracy([0, 1, 2], [4, 6, 8]), trials.accuracy([7, 3, 0], [2, 4, 6, 8])]
    assert accuracies(pool, sets, rows).tolist() == pytest.approx(expected)


def test_no_set_is_tried_on_an_input_that_it_has_with_another_label() -> None:
    pool, trials = fake_pool(10)
    pool = replace(pool, groups=[0, 1, 2, 3, 0, 5, 1, 7, 8, 9])
    expected = [trials.accuracy([0, 1, 2], [8]), trials.accuracy([7, 3, 5], [0, 2, 4, 6, 8]), 0]
    sets, rows = [[0, 1, 2], [7, 3, 5], [4, 1, 2, 8]], [0, 2, 4, 6, 8]
    assert accuracies(pool, sets, rows).tolist() == pytest.approx(expected)
    with pytest.raises(InputError, match="shots 4: the pool has 4 different rows"):
        dev_rows(replace(pool, groups=[0, 1, 2, 3] * 2 + [0, 0]), 4, random.Random(0))


def test_rows_with_one_text_and_two_labels_are_one_input_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Pool]()

    def observe(pool: Pool, shots: int, draw: random.Random) -> Choice:
        seen.append(pool)
        return Choice(range(shots))

    monkeypatch.setitem(METHODS, "observe", SelectionMethod(observe, "", ""))
    rows = [Query(text, ("a", "b"), label) for text in ("one", "two", "three") for label in "ab"]
    pool = PoolRows.of("rows", rows, Template("{text} {label}"), ("a", "b"))
    choose_demonstrations(None, pool, Request("observe", 2))
    (given,) = seen
    assert [given.inputs.tolist().count(number) for number in range(3)] == [2, 2, 2]
    for row, number in zip(given.rows, given.inputs, strict=True):
        assert {each.text for each, same in zip(given.rows, given.inputs, strict=True) if same == number} == {row.text}


@pytest.mark.parametrize("rows", [5, 30, 300])
def test_every_set_lacks_a_dev_row(rows: int) -> None:
    pool, _ = fake_pool(rows)
    for shots in {1, 4, rows // 2, rows - 1} - {0}:
        assert len(dev_rows(pool, shots, random.Random(0))) > shots


def test_random_valid_is_the_best_of_thirty_sets() -> None:
    pool, trials = fake_pool(40)
    best = chosen("random-valid", pool, 4)
    tried, dev = sets_of(trials, 4), set(trials.tried[0][1])
    accuracy = [trials.accuracy(each, sorted(dev - set(each))) for each in tried]
    assert len(tried) == 30
    assert len(set(accuracy)) > 5
    assert best == list(tried[accuracy.index(max(accuracy))])


@pytest.mark.parametrize("balanced", [False, True])
def test_influence_is_the_mean_accuracy_of_sets_with_a_row_less_that_of_sets_without_it(balanced: bool) -> None:
    pool, trials = fake_pool(30, balanced=balanced)
    choice = METHODS["influence"](pool, 6, random.Random(3))
    tried, dev = [each for each, _ in trials.tried], set(trials.tried[0][1])
    accuracy = {each: trials.accuracy(each, sorted(dev - set(each))) for each in tried}
    expected = [
        np.mean([accuracy[each] for each in tried if row in each])
        - np.mean([accuracy[each] for each in tried if row not in each])
        for row in range(30)
    ]
    assert len(tried) == 25
    assert choice.scores.tolist() == pytest.approx(expected)
    if not balanced:
        assert set(choice.rows) == set(np.argsort(expected)[-6:].tolist())


def test_influence_finds_the_rows_that_help() -> None:
    pool, trials = fake_pool(60)
    trials.pull[:] = 0.0
    helpful = [3, 10, 17]  # one of each label
    for row in helpful:
        trials.pull[row] = [4.0 if trials.gold[row] == gold else -4.0 for gold in trials.gold]
    assert set(chosen("influence", pool, 3)) == set(helpful)


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_equal_influence_have_equal_scores_and_the_first_is_chosen(seed: int) -> None:
    pool, trials = fake_pool(30)
    trials.pull[:] = 0.0  # no row changes a prediction, but sets leave out different dev rows
    choice = METHODS["influence"](pool, 6, random.Random(seed))
    tried, dev = [each for each, _ in trials.tried], set(trials.tried[0][1])
    right = {row for row in dev if int(trials.one((), row).argmax()) == trials.gold[row]}
    share = {each: Fraction(len(right - set(each)), len(dev - set(each))) for each in tried}
    exact = [
        sum((share[each] for each in tried if row in each), Fraction(0)) / sum(row in each for each in tried)
        - sum((share[each] for each in tried if row not in each), Fraction(0)) / sum(row not in each for each in tried)
        for row in range(30)
    ]
    assert len(set(exact)) < 30
    assert list(choice.rows) == sorted(range(30), key=lambda row: (-exact[row], row))[:6]


def test_the_same_counts_of_labels_are_as_even_whichever_labels_have_them() -> None:
    values = {
        global_entropy(np.repeat(np.eye(4)[list(order)], (1, 2, 3, 4), axis=0)) for order in permutations(range(4))
    }
    assert len(values) == 1


@pytest.mark.parametrize(
    ("probabilities", "in_all", "on_average"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], math.log(2), 0.0),
        ([[0.5, 0.5], [0.5, 0.5]], 0.0, math.log(2)),
        ([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]], math.log(2), None),
        ([[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]], 0.5623351446, 0.5623351446),
    ],
)
def test_entropies_of_hand_computed_cases(
    probabilities: list[list[float]], in_all: float, on_average: float | None
) -> None:
    assert global_entropy(np.array(probabilities)) == pytest.approx(in_all)
    if on_average is not None:
        assert local_entropy(np.array(probabilities)) == pytest.approx(on_average)


@pytest.mark.parametrize(("method", "entropy"), [("global-entropy", global_entropy), ("local-entropy", local_entropy)])
def test_entropy_orders_a_set_that_is_the_whole_pool(method: str, entropy: object) -> None:
    pool, trials = fake_pool(4)
    best = chosen(method, pool, 4)
    assert set(trials.tried) == {(order, (0, 1, 2, 3)) for order in permutations(range(4))}
    tried = sets_of(trials, 4)
    values = [entropy(np.array([trials.one(each, row) for row in range(4)])) for each in tried]  # type: ignore[operator]
    assert tuple(best) == tried[values.index(max(values))]


@pytest.mark.parametrize("method", ["global-entropy", "local-entropy"])
def test_entropy_tries_24_orders_on_rows_outside_the_set(method: str) -> None:
    pool, trials = fake_pool(20)
    best = chosen(method, pool, 6)
    assert len(sets_of(trials, 6)) == 24
    assert tuple(best) in sets_of(trials, 6)
    assert {row for _, rows in trials.tried for row in rows} == set(range(20)) - set(best)


@pytest.mark.parametrize("method", TRYING)
def test_only_entropies_ignore_the_labels_of_other_rows(method: str) -> None:
    pool, trials = fake_pool(20)
    before = chosen(method, pool, 6)
    relabelled = [
        query if row in before else replace(query, gold=pool.rows[(row + 1) % 20].gold)
        for row, query in enumerate(pool.rows)
    ]
    after = chosen(method, Pool(relabelled, trials=trials), 6)
    assert (after == before) == ("entropy" in method)
