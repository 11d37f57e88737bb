"""Methods for given queries: rows near the queries' centroids, and rows whose tokens cover the queries' tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from deepthink_cli.selection.registry import States

ITERATIONS = 100  # of k-means


def k_means(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose, for each of `shots` centroids of the queries' hidden states, the nearest row that is not yet chosen.

    Without queries, the centroids are the pool's. The centroid of the largest cluster chooses first; with fewer
    different queries than `shots`, all choose again in turn. The score of a row is minus the distance to the nearest
    centroid.
    """
    assert pool.hidden is not None
    targets = pool.hidden if pool.target_hidden is None else pool.target_hidden
    count = min(shots, len(np.unique(targets, axis=0)))
    generator = np.random.default_rng(draw.getrandbits(64))
    centroids, clusters = kmeans2(targets.astype(np.float64), count, ITERATIONS, minit="++", seed=generator)
    sizes = np.bincount(clusters, minlength=len(centroids))
    distances = cdist(pool.hidden, centroids[np.argsort(-sizes, kind="stable")], "sqeuclidean")  # (n, K)
    chosen: list[int] = []
    free = distances.copy()
    for number in range(shots):
        row = int(free[:, number % len(centroids)].argmin())
        free[row] = np.inf
        chosen.append(row)
    return Choice(chosen, -np.sqrt(distances.min(axis=1)))


MAX_TOKENS = 16_384  # of the covered queries
MAX_CELLS = 2**27  # similarities held, of 4 bytes each: 512 MiB


def set_bsr(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose rows greedily to maximise sum_t max_s cos(t, s) over tokens t of the queries and s of the chosen rows.

    This is the set form of BERTScore recall, with the model's hidden states as vectors. Without queries, the rows of
    the pool are the queries, and no row covers the tokens of its own input. Queries are sampled if they have more than
    16,384 tokens, or 2^27 / n; at least one is used. The score of a row is the coverage by this row alone. The first
    row wins a tie.
    """
    assert pool.tokens is not None
    itself = pool.target_tokens is None
    targets = pool.tokens if pool.target_tokens is None else pool.target_tokens
    sampled = _sampled(targets, min(MAX_TOKENS, MAX_CELLS // len(pool)), draw)
    ends = np.cumsum([len(targets[place]) for place in sampled])
    wanted = _unit(np.concatenate([targets[place] for place in sampled]))  # (T, W)
    covered = np.empty((len(pool), len(wanted)), dtype=np.float32)  # (n, T)
    for row, states in enumerate(pool.tokens):
        covered[row] = (_unit(states) @ wanted.T).max(axis=0)
    if itself:
        for place, end in zip(sampled, ends, strict=True):
            same = pool.inputs == pool.inputs[place]
            covered[same, end - len(targets[place]) : end] = -1.0  # the smallest cosine
    return _most_covering(covered, shots)


def _most_covering(covered: States, shots: int) -> Choice:
    """Choose rows by how much each adds to sum_t max over chosen rows of `covered` (n, T), in float64."""
    best = np.full(covered.shape[1], -1.0, dtype=np.float32)
    alone = covered.sum(axis=1, dtype=np.float64)
    totals, chosen = alone.copy(), list[int]()
    for _ in range(shots):
        totals[chosen] = -np.inf
        row = int(totals.argmax())
        chosen.append(row)
        best = np.maximum(best, covered[row])
        totals = np.array([np.maximum(best, other).sum(dtype=np.float64) for other in covered])
    return Choice(chosen, alone)


def _sampled(targets: Sequence[States], most: int, draw: random.Random) -> list[int]:
    """The places of all targets, or of randomly drawn ones with at most `most` tokens together, and at least one."""
    lengths = [len(states) for states in targets]
    if sum(lengths) <= most:
        return list(range(len(targets)))
    order = draw.sample(range(len(targets)), len(targets))
    fit = int(np.searchsorted(np.cumsum([lengths[place] for place in order]), most, side="right"))
    return sorted(order[: max(1, fit)])


def _unit(states: States) -> States:
    """Vectors of length 1 in float32; a vector of zeros stays as it is."""
    lengths = np.linalg.norm(states, axis=1, keepdims=True)
    return np.asarray(states / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
