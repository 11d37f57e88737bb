"""Methods on hidden states and probabilities, against their definitions and against other programs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from deepthink_cli.data.examples import Query
from deepthink_cli.plugins.selection.gradients import PENALTY, Gradients, nonnegative
from deepthink_cli.selection.registry import METHODS, Choice, Pool

UNCERTAIN = ("entropy", "least-confidence", "margin")
METHODS_OF_FEATURES = (
    *UNCERTAIN,
    *("herding", "k-center", "cal", "craig", "gradmatch", "facility-location", "graph-cut"),
)
every_method = pytest.mark.parametrize("method", METHODS_OF_FEATURES)
SEEDS = pytest.mark.parametrize("seed", range(5))


def pool_of(rows: int, labels: int = 3, width: int = 5, seed: int = 0, scale: float = 1.0) -> Pool:
    """A pool with hidden states from a normal distribution, and probabilities that are independent of them."""
    rng = np.random.default_rng(seed)
    names = tuple(f"label {label}" for label in range(labels))
    queries = [Query(f"text {row}", names, names[label]) for row, label in enumerate(rng.integers(labels, size=rows))]
    hidden = (scale * rng.normal(size=(rows, width)) + 0.3).astype(np.float32)
    return Pool(queries, hidden, rng.dirichlet(np.ones(labels), size=rows))


def choose(method: str, pool: Pool, shots: int, seed: int = 0) -> Choice:
    """What a registered method chooses."""
    return METHODS[method](pool, shots, random.Random(seed))


def chosen(method: str, pool: Pool, shots: int, seed: int = 0) -> list[int]:
    """The rows that a registered method chooses, in the order in which it chooses them."""
    return list(choose(method, pool, shots, seed).rows)


def part_of(pool: Pool, rows: list[int]) -> Pool:
    """Some rows of a pool, in this order."""
    queries = [pool.rows[row] for row in rows]
    return replace(pool, rows=queries, hidden=pool.hidden[rows], probabilities=pool.probabilities[rows])


def explicit_gradients(pool: Pool) -> Array:
    """The vectors g_i = [d_i ; d_i (x) h_i] (n, C (1 + W)) in float64."""
    residuals = pool.probabilities - np.eye(pool.probabilities.shape[1])[pool.gold]
    outer = residuals[:, :, None] * pool.hidden.astype(np.float64)[:, None, :]
    return np.concatenate([residuals, outer.reshape(len(pool), -1)], axis=1)


def cosines(pool: Pool) -> Array:
    """s_ij = 1/2 + 1/2 cos(g_i, g_j) (n, n)."""
    vectors = explicit_gradients(pool)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return 0.5 + 0.5 * unit @ unit.T


def gradient_distances(pool: Pool) -> Array:
    """||g_i - g_j|| (n, n)."""
    vectors = explicit_gradients(pool)
    return np.linalg.norm(vectors[:, None] - vectors[None], axis=2)


@every_method
@pytest.mark.parametrize("shots", [1, 7, 29, 30])
def test_every_method_chooses_that_many_different_rows_and_scores_all(method: str, shots: int) -> None:
    choice = choose(method, pool_of(30), shots)
    assert len(set(choice.rows)) == len(choice.rows) == shots
    assert choice.scores.shape == (30,)
    assert choice.scores.dtype == np.float64
    assert np.isfinite(choice.scores).all()
    assert not choice.ordered


@every_method
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_every_method_chooses_all_rows_of_a_pool_with_a_single_label(method: str, rows: int) -> None:
    pool = pool_of(30)
    part = part_of(pool, pool.by_label["label 1"][:rows])
    assert sorted(chosen(method, part, rows)) == list(range(rows))


@every_method
def test_every_method_chooses_among_rows_of_which_the_model_is_certain(method: str) -> None:
    pool = pool_of(20)
    pool.probabilities[:] = np.eye(3)[pool.gold]
    choice = choose(method, pool, 5)
    assert len(set(choice.rows)) == 5
    assert np.isfinite(choice.scores).all()


@pytest.mark.parametrize("method", [name for name in METHODS_OF_FEATURES if name != "k-center"])
@SEEDS
def test_the_order_of_the_pool_changes_nothing(method: str, seed: int) -> None:
    pool = pool_of(40, seed=seed)
    order = np.random.default_rng(seed).permutation(40).tolist()
    assert [order[row] for row in chosen(method, part_of(pool, order), 4)] == chosen(method, pool, 4)


@pytest.mark.parametrize(
    ("method", "rows", "scores"),
    [
        ("entropy", [1, 2, 0], [0.325083, 1.088900, 0.807043]),
        ("least-confidence", [1, 2, 0], [0.1, 0.6, 0.51]),
        ("margin", [2, 1, 0], [-0.8, -0.1, -0.01]),
    ],
)
def test_uncertain_rows_by_hand(method: str, rows: list[int], scores: list[float]) -> None:
    pool = pool_of(3)
    pool.probabilities[:] = [[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.49, 0.48, 0.03]]
    assert chosen(method, pool, 3) == rows
    assert choose(method, pool, 1).scores == pytest.approx(scores)


@SEEDS
def test_herding_keeps_the_mean_of_the_chosen_near_the_mean_of_the_pool(seed: int) -> None:
    pool = pool_of(25, seed=seed)
    hidden = np.asarray(pool.hidden, dtype=np.float64)
    rows = chosen("herding", pool, 8)
    for step, row in enumerate(rows):
        sums = {
            other: np.linalg.norm((step + 1) * hidden.mean(axis=0) - hidden[rows[:step]].sum(axis=0) - hidden[other])
            for other in range(25)
            if other not in rows[:step]
        }
        assert row == min(sums, key=sums.__getitem__)


@SEEDS
def test_k_center_adds_the_row_that_is_farthest_from_the_chosen(seed: int) -> None:
    pool = pool_of(25, seed=seed)
    hidden = np.asarray(pool.hidden, dtype=np.float64)
    choice = choose("k-center", pool, 8, seed)
    apart = np.linalg.norm(hidden[:, None] - hidden[None], axis=2)
    for step, row in list(enumerate(choice.rows))[1:]:
        nearest = apart[:, list(choice.rows[:step])].min(axis=1)
        assert row == nearest.argmax()
        assert choice.scores[row] == pytest.approx(nearest[row])
    assert all(later <= earlier for earlier, later in pairwise(choice.scores[list(choice.rows)]))


def test_k_center_draws_its_first_row_with_the_seed() -> None:
    assert len({chosen("k-center", pool_of(25), 3, seed)[0] for seed in range(10)}) > 3


def cal_scores(pool: Pool, neighbours: int) -> list[float]:
    """mean_n KL(p(y | n) || p(y | x)) over the nearest neighbours of every row, row by row."""
    scores = []
    for row, (hidden, own) in enumerate(zip(pool.hidden, pool.probabilities, strict=True)):
        distances = [
            np.linalg.norm(hidden - other) if place != row else np.inf for place, other in enumerate(pool.hidden)
        ]
        near = np.argsort(distances, kind="stable")[:neighbours]
        scores.append(float(np.mean([sum(p * np.log(p / own)) for p in pool.probabilities[near]])))
    return scores


@SEEDS
@pytest.mark.parametrize("rows", [6, 300])
def test_cal_takes_rows_that_differ_most_from_their_ten_nearest(seed: int, rows: int) -> None:
    pool = pool_of(rows, seed=seed)
    expected = cal_scores(pool, min(10, rows - 1))
    choice = choose("cal", pool, 5)
    np.testing.assert_allclose(choice.scores, expected, rtol=1e-9)
    assert list(choice.rows) == np.argsort(-np.array(expected))[:5].tolist()


def test_gradients_in_closed_form_are_those_of_backpropagation() -> None:
    pool = pool_of(6)
    layer = torch.nn.Linear(5, 3).double()
    states = torch.from_numpy(pool.hidden).double()
    pool.probabilities[:] = layer(states).softmax(dim=1).detach().numpy()
    vectors = []
    for row in range(6):
        loss = torch.nn.functional.cross_entropy(layer(states[row]), torch.tensor(pool.gold[row]))
        weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
        vectors.append(torch.cat([bias, weight.flatten()]).numpy())
    expected = np.stack(vectors) @ np.stack(vectors).T
    closed = Gradients.of(pool)
    np.testing.assert_allclose(closed.inner(slice(0, 6)), expected, atol=1e-12)
    np.testing.assert_allclose(closed.sums(), expected.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(closed.squares(), expected.diagonal(), atol=1e-12)
    np.testing.assert_allclose(closed.unit().squares(), 1)


@SEEDS
def test_gradmatch_is_orthogonal_matching_pursuit_on_the_explicit_gradients(seed: int) -> None:
    from scipy.optimize import lsq_linear

    pool = pool_of(30, seed=seed)
    vectors = explicit_gradients(pool)
    mean, rows = vectors.mean(axis=0), list[int]()
    weights = np.zeros(0)
    for _ in range(8):
        fits = vectors @ (mean - weights @ vectors[rows])
        fits[rows] = -np.inf
        rows.append(int(fits.argmax()))
        ridge = np.concatenate([vectors[rows].T, np.sqrt(PENALTY) * np.eye(len(rows))])
        target = np.concatenate([mean, np.zeros(len(rows))])
        weights = lsq_linear(ridge, target, bounds=(0, np.inf), method="bvls", tol=1e-14).x
    assert chosen("gradmatch", pool, 8) == rows


def test_gradmatch_weights_are_the_best_among_all_supports() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        factor = rng.normal(size=(4, 6))
        kernel, target = factor @ factor.T, rng.normal(size=4)
        penalised = kernel + PENALTY * np.eye(4)
        values = []
        for support in range(16):
            rows = [row for row in range(4) if support >> row & 1]
            free = np.linalg.solve(penalised[np.ix_(rows, rows)], target[rows])
            if (free >= 0).all():
                values.append(free @ penalised[np.ix_(rows, rows)] @ free - 2 * free @ target[rows])
        weights = nonnegative(kernel, target)
        assert (weights >= 0).all()
        assert weights @ penalised @ weights - 2 * weights @ target == pytest.approx(min(values))


def test_gradmatch_chooses_that_many_rows_although_none_reduces_the_error() -> None:
    pool = pool_of(6, labels=2)
    pool.hidden[:] = 0  # the gradients of a label all point in one direction
    assert sorted(chosen("gradmatch", pool, 6)) == list(range(6))


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


@every_objective
def test_every_row_adds_as_much_as_a_row_can(method: str) -> None:
    pool = pool_of(100)
    value, rows = OBJECTIVES[method](pool), list[int]()
    for _ in range(6):
        rows.append(max(sorted(set(range(100)) - set(rows)), key=lambda row: value([*rows, row])))
    assert chosen(method, pool, 6) == rows


def test_a_row_without_a_gradient_is_half_similar_to_all_rows() -> None:
    pool = pool_of(10)
    pool.probabilities[3] = np.eye(3)[pool.gold[3]]
    assert not Gradients.of(pool).unit().inner(slice(3, 4)).any()
    for method in OBJECTIVES:
        assert np.isfinite(choose(method, pool, 9).scores).all()


Array = Any
