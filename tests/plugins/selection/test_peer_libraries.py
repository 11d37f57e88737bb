"""The same choices as other people's libraries, on 1,000 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.feature_pools import choose, chosen, cosines, gradients, pool_of

ROWS, SHOTS = 1_000, 16


@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize(
    ("method", "peer"),
    [("entropy", "entropy"), ("least-confidence", "least_confident"), ("margin", "margin_sampling")],
)
def test_uncertainty_is_that_of_scikit_activeml(method: str, peer: str, labels: int) -> None:
    skactiveml = pytest.importorskip("skactiveml.pool")
    pool = pool_of(ROWS, labels=labels)
    utilities = skactiveml.uncertainty_scores(pool.probabilities, method=peer)
    assert chosen(method, pool, SHOTS) == np.argsort(-utilities, kind="stable")[:SHOTS].tolist()


def test_k_center_is_that_of_scikit_activeml() -> None:
    skactiveml = pytest.importorskip("skactiveml.pool")
    pool = pool_of(ROWS, width=16)
    first, *rest = chosen("k-center", pool, SHOTS)
    labelled = np.full(ROWS, np.nan)
    labelled[first] = 0
    query = skactiveml.CoreSet(random_state=0).query(pool.hidden, labelled, batch_size=SHOTS - 1)
    assert rest == query.tolist()


def greedy_of(function: Any) -> tuple[list[int], list[float]]:
    """The rows that submodlib's greedy algorithm adds, and what each adds."""
    steps = function.maximize(budget=SHOTS, optimizer="NaiveGreedy", stopIfZeroGain=False, stopIfNegativeGain=False)
    return [row for row, _ in steps], [gain for _, gain in steps]


@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize("method", ["facility-location", "craig", "graph-cut"])
def test_sets_by_gradients_are_those_of_submodlib(method: str, labels: int) -> None:
    submodlib = pytest.importorskip("submodlib")
    pool = pool_of(ROWS, labels=labels)
    if method == "craig":
        vectors = gradients(pool)
        squares = (vectors**2).sum(axis=1)
        distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * vectors @ vectors.T, 0))
        kernel = distances.max() - distances
    else:
        kernel = cosines(pool)
    if method == "graph-cut":
        function = submodlib.GraphCutFunction(n=ROWS, mode="dense", lambdaVal=1.0, ggsijs=kernel)
    else:
        function = submodlib.FacilityLocationFunction(n=ROWS, mode="dense", sijs=kernel, separate_rep=False)
    rows, gains = greedy_of(function)
    choice = choose(method, pool, SHOTS)
    assert list(choice.rows) == rows
    np.testing.assert_allclose(choice.scores[rows], gains, rtol=1e-4)
