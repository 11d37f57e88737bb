"""Pools with random hidden states and probabilities, and what methods are defined by, stated plainly in float64."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from deepthink_cli.data.examples import Query
from deepthink_cli.selection.base import Choice, Pool
from deepthink_cli.selection.registry import METHODS

Array = Any


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


def gradients(pool: Pool) -> Array:
    """The vectors g_i = [d_i ; d_i (x) h_i] (n, C (1 + W)) in float64."""
    residuals = pool.probabilities - np.eye(pool.probabilities.shape[1])[pool.gold]
    outer = residuals[:, :, None] * pool.hidden.astype(np.float64)[:, None, :]
    return np.concatenate([residuals, outer.reshape(len(pool), -1)], axis=1)


def cosines(pool: Pool) -> Array:
    """s_ij = 1/2 + 1/2 cos(g_i, g_j) (n, n)."""
    vectors = gradients(pool)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return 0.5 + 0.5 * unit @ unit.T


def gradient_distances(pool: Pool) -> Array:
    """||g_i - g_j|| (n, n)."""
    vectors = gradients(pool)
    return np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
