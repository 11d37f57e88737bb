"""Methods that choose rows for known queries: k-means and Set-BSR."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.fake_trials import fake_pool

from deepthink_cli.plugins.selection import zero_shot as queries
from deepthink_cli.selection.registry import METHODS, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import States


def states(seed: int, *shape: int) -> States:
    """Random hidden states."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pool_of(rows: int, **parts: object) -> Pool:
    """A pool with these parts."""
    return Pool(fake_pool(rows)[0].rows, **parts)  # type: ignore[arg-type]


def test_k_means_chooses_the_rows_nearest_to_groups_of_queries() -> None:
    hidden = np.array([[0.0], [1.0], [5.1], [9.0], [20.0]], dtype=np.float32)
    targets = np.array([[4.0], [5.0], [6.0], [19.0], [21.0]], dtype=np.float32)
    choice = METHODS["k-means"](pool_of(5, hidden=hidden, target_hidden=targets), 2, random.Random(0))
    assert list(choice.rows) == [2, 4]  # the larger group first
    assert choice.scores is not None
    assert choice.scores == pytest.approx([-5.0, -4.0, -0.1, -4.0, 0.0], abs=1e-6)


def test_centroids_choose_different_rows_and_several_if_there_are_few_queries() -> None:
    hidden, targets = np.array([[0.0], [1.0], [2.0], [9.0]], dtype=np.float32), np.zeros((3, 1), dtype=np.float32)
    choice = METHODS["k-means"](pool_of(4, hidden=hidden, target_hidden=targets), 3, random.Random(0))
    assert list(choice.rows) == [0, 1, 2]


def test_without_queries_the_centroids_are_those_of_the_pool() -> None:
    hidden = np.array([[0.0], [1.0], [2.0], [30.0], [31.0], [32.0]], dtype=np.float32)
    assert set(METHODS["k-means"](pool_of(6, hidden=hidden), 2, random.Random(0)).rows) == {1, 4}


def recall(targets: list[States], rows: list[States]) -> float:
    """Set-BSR by its definition: sum over target tokens of the largest cosine with a token of the rows."""
    total = 0.0
    for token in np.concatenate(targets).astype(np.float64):
        others = np.concatenate(rows).astype(np.float64)
        total += max(token @ other / np.linalg.norm(token) / np.linalg.norm(other) for other in others)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_set_bsr_is_greedy_and_close_to_the_best_set(seed: int) -> None:
    tokens = [states(10 * seed + row, 2 + row % 3, 5) for row in range(8)]
    targets = [states(100 + seed, 4, 5), states(200 + seed, 3, 5)]
    choice = METHODS["set-bsr"](pool_of(8, tokens=tokens, target_tokens=targets), 3, random.Random(0))
    greedy: list[int] = []
    for _ in range(3):
        gains = {
            row: recall(targets, [tokens[other] for other in (*greedy, row)]) for row in range(8) if row not in greedy
        }
        greedy.append(max(gains, key=gains.__getitem__))
    assert list(choice.rows) == greedy
    assert choice.scores == pytest.approx([recall(targets, [each]) for each in tokens], abs=1e-5)
    best = max(recall(targets, [tokens[row] for row in rows]) for rows in combinations(range(8), 3))
    # The coverage of no row is -1 a token, from which the bound of Nemhauser et al. 1978 counts.
    assert recall(targets, [tokens[row] for row in greedy]) + 7 >= (1 - 1 / np.e) * (best + 7)


def test_without_queries_no_row_covers_its_own_tokens() -> None:
    twins = [states(0, 2, 4), states(1, 2, 4)]
    pool = pool_of(5, tokens=[twins[0], 2 * states(9, 2, 4), twins[0], twins[1], twins[1]])
    choice = METHODS["set-bsr"](pool, 2, random.Random(0))
    assert set(choice.rows) == {0, 3}  # one of each pair covers the other


def test_without_queries_no_row_covers_the_tokens_of_its_input_with_another_label() -> None:
    twin, other = states(0, 2, 4), states(9, 2, 4)
    pool = replace(pool_of(3, tokens=[twin, other, twin]), groups=[0, 1, 0])
    scores = METHODS["set-bsr"](pool, 1, random.Random(0)).scores
    assert scores is not None
    cosines = (twin / np.linalg.norm(twin, axis=1)[:, None]) @ (other / np.linalg.norm(other, axis=1)[:, None]).T
    # A twin covers the two tokens of the other input, and has -1 for the four of its own; that one covers both twins.
    expected = [cosines.max(axis=0).sum() - 4, 2 * cosines.max(axis=1).sum() - 2]
    assert scores == pytest.approx([expected[0], expected[1], expected[0]], rel=1e-5)


def test_queries_are_sampled_to_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [states(row, 3, 4) for row in range(6)]
    monkeypatch.setattr(queries, "MAX_TOKENS", 7)
    sizes = []
    greedy = queries._most_covering
    monkeypatch.setattr(
        queries, "_most_covering", lambda covered, shots: sizes.append(covered.shape) or greedy(covered, shots)
    )
    METHODS["set-bsr"](pool_of(6, tokens=tokens, target_tokens=tokens), 2, random.Random(0))
    assert sizes == [(6, 6)]  # two queries of three tokens
