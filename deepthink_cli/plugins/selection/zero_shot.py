"""Methods by what the model says of each row alone, or of queries: hidden states, and probabilities of labels."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from deepthink_cli.selection.registry import Floats, Ints, States


def herding(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose at step t the row with the smallest || t mu - sum_{s in S} h_s - h_x ||; the score is minus that.

    mu is the mean hidden state of the pool, S the rows chosen before (Welling 2009). No row is chosen twice.
    """
    hidden = hidden_states(pool)

    def objective() -> Gains:
        mean: Floats = hidden.mean(axis=0, dtype=np.float64)
        target = mean
        while True:
            row = yield -distances(hidden, target)
            target = target + mean - hidden[row]

    return greedy(objective(), len(pool), shots)


def k_center(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw a first row, then choose the row that is farthest from those chosen, argmax_x min_{s in S} ||h_x - h_s||.

    Sener and Savarese 2018, algorithm 1. The score of a row is that distance, of a chosen row when it was chosen; the
    drawn row has the distance of the row that is farthest from it.
    """
    hidden = hidden_states(pool)
    first = draw.randrange(len(pool))

    def objective() -> Gains:
        nearest = distances(hidden, hidden[first])
        gains = np.full(len(pool), -np.inf)
        gains[first] = nearest.max()
        yield gains
        while True:
            row = yield nearest
            nearest = np.minimum(nearest, distances(hidden, hidden[row]))

    return greedy(objective(), len(pool), shots)


def entropy(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the largest entropy, -sum_y p(y | x) log p(y | x)."""
    probabilities = label_probabilities(pool)
    return largest(-(probabilities * np.log(np.maximum(probabilities, TINY))).sum(axis=1), shots)


def least_confidence(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the largest 1 - max_y p(y | x)."""
    return largest(1 - label_probabilities(pool).max(axis=1), shots)


def margin(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows with the smallest difference of the two largest probabilities; the score is minus that."""
    ranked = np.sort(label_probabilities(pool), axis=1)
    return largest(ranked[:, -2] - ranked[:, -1], shots)


NEIGHBOURS = 10


def cal(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the rows x with the largest mean over their nearest neighbours n of KL(p(y | n) || p(y | x)).

    Margatina et al. 2021, algorithm 1: the neighbours are the 10 other rows of the pool whose hidden states have the
    smallest Euclidean distance, all others if there are fewer.
    """
    probabilities = label_probabilities(pool)
    logs = np.log(np.maximum(probabilities, TINY))
    near = nearest(hidden_states(pool), min(NEIGHBOURS, len(pool) - 1))
    if not near.size:
        return largest(np.zeros(len(pool)), shots)
    divergences = probabilities[near] * (logs[near] - logs[:, None])  # (n, neighbours, C)
    # Rows with one text and two labels have the same neighbours but for each other, at other places in the sum.
    return largest(np.array([math.fsum(each) for each in divergences.sum(axis=2)]) / near.shape[1], shots)


def nearest(hidden: States, neighbours: int) -> Ints:
    """The nearest other rows (n, neighbours) of every row, in the order of the pool; among equals, the first."""
    exact, near = hidden.astype(np.float64), []
    squares = np.einsum("iw,iw->i", exact, exact)
    for rows in blocks(len(hidden)):
        distances = squares - 2 * (exact[rows] @ exact.T)  # squared, up to a constant of each row
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
        near.append(np.sort(np.argsort(distances, axis=1, kind="stable")[:, :neighbours], axis=1))
    return np.concatenate(near)


STEP = 64  # rows that are computed together, so that no intermediate result is large
TINY = float(np.finfo(np.float64).tiny)  # stands for a probability of 0 in a logarithm


def hidden_states(pool: Pool) -> States:
    """The hidden states (n, W) of a pool for a method that reads them."""
    assert pool.hidden is not None, "the method reads hidden states"
    return pool.hidden


def label_probabilities(pool: Pool) -> Floats:
    """The probabilities (n, C) of a pool for a method that reads them."""
    assert pool.probabilities is not None, "the method reads probabilities"
    return np.asarray(pool.probabilities, dtype=np.float64)


def blocks(count: int) -> Iterator[slice]:
    """`count` rows as slices of at most STEP rows."""
    return (slice(start, min(start + STEP, count)) for start in range(0, count, STEP))


def distances(hidden: States, point: Floats | States) -> Floats:
    """The Euclidean distance (n,) of every row from a point (W,), in float64."""
    point = np.asarray(point, dtype=np.float64)
    return np.concatenate([np.linalg.norm(hidden[rows] - point, axis=1) for rows in blocks(len(hidden))])


def largest(scores: Floats, shots: int) -> Choice:
    """Choose the rows with the largest scores (n,); among equal scores, the first rows."""
    return Choice(np.argsort(-scores, kind="stable")[:shots].tolist(), scores)


TIE = 1e-9  # gains are equal if they differ by less than this share of the largest: two rows often add the same


# What each row (n,) would add to an objective, before each row that is added, which is sent; not read for added rows.
Gains = Generator["Floats", int]


def greedy(objective: Gains, count: int, shots: int) -> Choice:
    """Add the row with the largest gain, the first among equals, until `shots` of `count` rows are chosen.

    A chosen row's score is its gain when it was chosen; another row's score is its gain after the last choice.
    """
    chosen: list[int] = []
    scores, free = np.zeros(count), np.ones(count, dtype=np.bool_)
    gains = next(objective)
    for _ in range(shots):
        row = best(gains, free)
        scores[row], free[row] = gains[row], False
        chosen.append(row)
        gains = objective.send(row)
    scores[free] = gains[free]
    return Choice(chosen, scores)


def best(gains: Floats, free: NDArray[bool_]) -> int:
    """The free row with the largest gain; among gains equal up to rounding, the first row."""
    largest = gains[free].max()
    return int(np.argmax(free & (gains >= largest - TIE * abs(largest))))


ITERATIONS = 100  # of k-means


def k_means(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose, for each of `shots` centroids of the queries' hidden states, the nearest row that is not yet chosen.

    Without queries, the centroids are the pool's. The centroid of the largest cluster chooses first; with fewer
    different queries than `shots`, all choose again in turn. The score of a row is minus the distance to the nearest
    centroid.
    """
    from scipy.cluster.vq import kmeans2
    from scipy.spatial.distance import cdist

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
