"""The rows nearest to the k-means centroids of the queries (arXiv 2507.16217)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.base import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.base import Floats, Ints, States

ITERATIONS = 300
_BLOCK = 1024  # rows whose distances are computed together


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose, for each of `shots` centroids of the queries' hidden states, the nearest row that is not yet chosen.

    Without queries, the centroids are the pool's. The centroid of the largest cluster chooses first; with fewer
    different queries than `shots`, all choose again in turn. The score of a row is minus the distance to the nearest
    centroid.
    """
    assert pool.hidden is not None
    targets = pool.hidden if pool.target_hidden is None else pool.target_hidden
    centroids = starting_centroids(targets, shots, draw)
    centroids, clusters = lloyd(targets, centroids)
    sizes = np.bincount(clusters, minlength=len(centroids))
    distances = squared_distances(pool.hidden, centroids[np.argsort(-sizes, kind="stable")])  # (n, K)
    chosen: list[int] = []
    free = distances.copy()
    for number in range(shots):
        row = int(free[:, number % len(centroids)].argmin())
        free[row] = np.inf
        chosen.append(row)
    return Choice(chosen, -np.sqrt(distances.min(axis=1)))


def starting_centroids(points: States, count: int, draw: random.Random) -> Floats:
    """At most `count` different points (K, W), each drawn by its squared distance to those before it (k-means++)."""
    places = [draw.randrange(len(points))]
    nearest = squared_distances(points, points[places])[:, 0]
    while len(places) < count and nearest.any():
        places += draw.choices(range(len(points)), weights=nearest.tolist())
        nearest = np.minimum(nearest, squared_distances(points, points[places[-1:]])[:, 0])
    return np.asarray(points[places], np.float64)


def lloyd(states: States, centroids: Floats) -> tuple[Floats, Ints]:
    """The centroids (K, W) and each point's cluster (n,) when no point changes its cluster, or after 300 iterations.

    A centroid without points stays where it is.
    """
    points, clusters = states.astype(np.float64), np.full(len(states), -1)
    for _ in range(ITERATIONS):
        nearest = (np.square(centroids).sum(axis=1) - 2 * points @ centroids.T).argmin(axis=1)
        if (nearest == clusters).all():
            break
        clusters = nearest
        centroids = centroids.copy()
        for number in np.unique(clusters):
            centroids[number] = points[clusters == number].mean(axis=0)
    return centroids, clusters


def squared_distances(points: States, others: States | Floats) -> Floats:
    """Squared Euclidean distances (n, K) in float64; exactly 0 between equal vectors."""
    distances = np.empty((len(points), len(others)))
    for number, other in enumerate(others.astype(np.float64)):
        for start in range(0, len(points), _BLOCK):
            difference = points[start : start + _BLOCK] - other
            distances[start : start + _BLOCK, number] = np.einsum("nw,nw->n", difference, difference)
    return distances
