"""Methods that maximise a function of the chosen set, against that function and against all sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.feature_pools import choose, cosines, gradient_distances, pool_of

from deepthink_cli.plugins.selection import features, gradients
from deepthink_cli.plugins.selection.gradients import Gradients
from deepthink_cli.selection.base import Pool

Value = Callable[[Sequence[int]], float]


def covered(similar: Any) -> Value:
    """sum_i max_{j in S} s_ij."""
    return lambda rows: float(similar[:, list(rows)].max(axis=1).sum()) if len(rows) else 0.0


def facility(pool: Pool) -> Value:
    return covered(cosines(pool))


def craig(pool: Pool) -> Value:
    distances = gradient_distances(pool)
    return covered(distances.max() - distances)


def graph_cut(pool: Pool) -> Value:
    similar = cosines(pool)
    return lambda rows: float(similar[:, list(rows)].sum() - similar[np.ix_(list(rows), list(rows))].sum())


OBJECTIVES = {"facility-location": facility, "craig": craig, "graph-cut": graph_cut}
every_objective = pytest.mark.parametrize("method", OBJECTIVES)


@every_objective
def test_the_scores_of_other_rows_are_what_they_would_add_to_the_choice(method: str) -> None:
    pool = pool_of(20)
    value, choice = OBJECTIVES[method](pool), choose(method, pool, 4)
    for row in set(range(20)) - set(choice.rows):
        assert choice.scores[row] == pytest.approx(value([*choice.rows, row]) - value(choice.rows), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("method", ["facility-location", "craig"])
def test_large_pools_are_computed_in_less_memory_with_the_same_choice(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(50)
    exact = choose(method, pool, 6)
    monkeypatch.setattr(features, "STEP", 7)
    monkeypatch.setattr(gradients, "STEP", 7)
    for kept in (50, 49):  # in float32, and computed again for every row
        monkeypatch.setattr(gradients, "EXACT", 0)
        monkeypatch.setattr(gradients, "KEPT", kept)
        again = choose(method, pool, 6)
        assert again.rows == exact.rows
        np.testing.assert_allclose(again.scores, exact.scores, rtol=1e-6, atol=1e-5)


def test_a_row_without_a_gradient_is_half_similar_to_all_rows() -> None:
    pool = pool_of(10)
    pool.probabilities[3] = np.eye(3)[pool.gold[3]]
    assert not Gradients.of(pool).unit().inner(slice(3, 4)).any()
    for method in OBJECTIVES:
        assert np.isfinite(choose(method, pool, 9).scores).all()
