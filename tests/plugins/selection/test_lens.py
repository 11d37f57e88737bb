"""LENS: both stages against independent statements of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.fake_trials import FakeTrials, fake_pool

from deepthink_cli.plugins.selection import lens
from deepthink_cli.plugins.selection.lens import (
    Candidates,
    choose,
    contributions_of,
    filtered,
    first_set,
    objective,
    search,
    substitute,
)
from deepthink_cli.plugins.selection.random_sets import dev_rows
from deepthink_cli.selection.registry import Pool


def helps(trials: FakeTrials, row: int, other: int) -> float:
    """InfoScore: c(e, e') = p(y' | e, x') - p(y' | x')."""
    gold = trials.gold[other]
    return float(trials.one([row], other)[gold] - trials.one([], other)[gold])


def test_filtering_keeps_the_best_third_in_every_stage() -> None:
    pool, trials = fake_pool(90)
    candidates = filtered(pool, 2, random.Random(7))
    order = random.Random(7).sample(range(90), 90)
    left, size = list(range(90)), 10
    while True:  # 90 candidates and 10 scored rows, 30 and 30, 10 and 90
        mean = {row: np.mean([helps(trials, row, other) for other in order[:size] if other != row]) for row in left}
        wanted = max(9, len(left) // 3)
        left = sorted(left, key=lambda row: -mean[row])[:wanted]
        if wanted == 9:
            break
        size *= 3
    assert (size, sorted(left)) == (90, candidates.rows.tolist())
    assert candidates.scores[candidates.rows] == pytest.approx([mean[row] for row in sorted(left)])
    expected = [[helps(trials, row, other) * (row != other) for other in order] for row in sorted(left)]
    assert candidates.contributions == pytest.approx(np.array(expected))


def test_a_row_does_not_help_its_own_input_with_another_label() -> None:
    pool, trials = fake_pool(8)
    given = contributions_of(replace(pool, groups=[0, 1, 2, 3, 0, 1, 6, 7]), [0, 1], [4, 5, 6, 0])
    expected = [
        [trials.one([row], scored)[scored % 3] - trials.one([], scored)[scored % 3] for scored in (4, 5, 6, 0)]
        for row in (0, 1)
    ]
    expected[0][0] = expected[0][3] = expected[1][1] = 0
    assert given == pytest.approx(np.array(expected))


def test_no_row_is_scored_more_often_than_its_stage_needs() -> None:
    pool, trials = fake_pool(90)
    filtered(pool, 2, random.Random(7))
    scored = sum(len(rows) for each, rows in trials.tried if each)
    assert scored == 90 * 10 + 30 * 20 + 10 * 60


def test_every_label_keeps_candidates_in_a_balanced_pool() -> None:
    pool, trials = fake_pool(90, balanced=True)
    trials.pull[::3] = -5.0  # rows of the first label mislead
    left = [trials.gold[row] for row in filtered(pool, 3, random.Random(0)).rows]
    assert min(left.count(label) for label in range(3)) == 4


def made(contributions: list[list[float]]) -> Candidates:
    """Candidates with these contributions, which are the whole pool."""
    values = np.array(contributions)
    return Candidates(np.arange(len(values)), values, values.mean(axis=1))


def test_substitution_is_the_best_by_its_definition() -> None:
    pool, _ = fake_pool(9)
    values = np.random.default_rng(0).normal(size=(9, 5)) / 3
    candidates, similar = made(values.tolist()), np.corrcoef(values)
    assert not np.allclose(similar, candidates.similarities)  # cosines, not correlations
    for place in range(3):
        staying = [row for row in (8, 2, 5) if row != (8, 2, 5)[place]]
        scores = {
            row: values[row].sum()
            - sum(
                values[row] @ values[other] / np.linalg.norm(values[row]) / np.linalg.norm(values[other])
                for other in staying
            )
            for row in set(range(9)) - {8, 2, 5}
        }
        assert substitute(pool, candidates, (8, 2, 5), place)[place] == max(scores, key=scores.__getitem__)


def test_substitution_keeps_the_labels_of_a_balanced_pool() -> None:
    pool, _ = fake_pool(6, balanced=True)
    candidates = made([[0.1], [0.9], [0.8], [0.2], [0.7], [0.6]])
    assert substitute(pool, candidates, (0, 1, 2), 0) == (3, 1, 2)
    assert substitute(Pool(pool.rows[:3], balanced=True), made([[0.1], [0.9], [0.8]]), (0, 1, 2), 0) == (0, 1, 2)


def test_search_ends_with_one_of_the_most_accurate_sets_that_it_tried() -> None:
    pool, trials = fake_pool(40)
    draw = random.Random(1)
    dev = dev_rows(pool, 4, draw)
    candidates = filtered(pool, 4, draw)
    trials.tried.clear()
    choice = search(pool, candidates, 4, dev, draw)
    accuracy = {each: trials.accuracy(each, sorted(set(dev) - set(each))) for each, _ in trials.tried}
    assert choice.ordered
    assert accuracy[tuple(choice.rows)] >= np.quantile(list(accuracy.values()), 0.9)
    assert len(trials.tried) == len(accuracy) <= lens.ROUNDS * lens.BEAM**2  # no set is tried twice


def test_lens_finds_the_rows_that_help() -> None:
    pool, trials = fake_pool(100)
    trials.pull[:] = np.random.default_rng(0).normal(size=(100, 100)) / 10
    helpful = list(range(30, 36))  # two of each label
    for row in helpful:
        trials.pull[row] = [4.0 if trials.gold[row] == gold else -4.0 for gold in trials.gold]
    choice = choose(pool, 3, random.Random(0))
    assert set(choice.rows) <= set(helpful)


@pytest.mark.parametrize("seed", range(5))
def test_the_first_set_cannot_be_improved_by_an_exchange(seed: int) -> None:
    """The sum over E of s(e, E - e), computed term by term from its definition."""
    values = np.random.default_rng(seed).normal(size=(9, 5))
    candidates, pool = made(values.tolist()), fake_pool(9)[0]
    chosen = first_set(pool, candidates, 3)

    def cosine(one: int, other: int) -> float:
        return float(values[one] @ values[other] / np.linalg.norm(values[one]) / np.linalg.norm(values[other]))

    def total(rows: Sequence[int]) -> float:
        return float(sum(values[e].sum() - sum(cosine(e, other) for other in rows if other != e) for e in rows))

    assert objective(candidates, chosen) == pytest.approx(total(chosen))
    for place in range(3):
        for other in set(range(9)) - set(chosen):
            assert total([*chosen[:place], other, *chosen[place + 1 :]]) <= total(chosen) + 1e-9
