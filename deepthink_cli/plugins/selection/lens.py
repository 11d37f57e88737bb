"""LENS: filter then search (Li and Qiu 2023).

Algorithm 1 keeps the rows that help others most when each is the only demonstration; algorithm 2 searches among them
for a set, in an order, that is accurate and whose rows help different inputs. Prompts are never truncated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from deepthink_cli.plugins.selection.random_sets import DEV, accuracies, dev_rows, trials_of
from deepthink_cli.plugins.selection.zero_shot import best
from deepthink_cli.selection.registry import Choice, Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepthink_cli.selection.registry import Floats, Ints

FIRST_SCORED = 10  # rows in the first score set
FACTOR = 3  # rho: the growth of the score set, and the reduction of the candidates, in every stage
MAX_CANDIDATES = 500  # m of the paper, whose pools are larger
DIVERSITY = 1.0  # lambda
BEAM, ROUNDS = 8, 10  # B and I
SPARE = 4  # at least so many candidates for each of the shots

Set = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Candidates:
    """What is left of the pool after filtering: rows (m,), and the score (n,) of every row of the pool.

    `contributions` (m, |S|) are f(e): how much each candidate helps every row of the score set, 0 for its own input.
    """

    rows: Ints
    contributions: Floats
    scores: Floats

    @cached_property
    def similarities(self) -> Floats:
        """Cosines (m, m) of the contributions; 0 for a candidate that contributes nothing."""
        lengths = np.linalg.norm(self.contributions, axis=1, keepdims=True)
        unit = self.contributions / np.where(lengths > 0, lengths, 1.0)
        similarities: Floats = unit @ unit.T
        return similarities

    @cached_property
    def informativeness(self) -> Floats:
        """I(e, S) (m,): the sum of c(e, s) over the score set."""
        sums: Floats = self.scores[self.rows] * self.contributions.shape[1]
        return sums


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose a set, in its order, by both stages of LENS.

    As in the paper, lambda = 1, B = 8, I = 10, and |V| = 100 rows of the pool that are not candidates; if the pool
    is too small for that, any rows, but for those whose input is in the set that is tried. The number of candidates is
    500 or a tenth of the pool, and at least 4 for each of the `shots`. The score of a row is its mean contribution, in
    the last stage that it reached, to the rows of the score set with other inputs.
    """
    order = dev_rows(pool, shots, draw, most=len(pool))
    candidates = filtered(pool, shots, draw)
    kept, most = set(pool.inputs[candidates.rows].tolist()), max(DEV, 2 * shots)
    outside = [row for row in order if pool.inputs[row] not in kept]
    return search(pool, candidates, shots, (outside if len(outside) >= 2 * shots else order)[:most], draw)


def filtered(pool: Pool, shots: int, draw: random.Random) -> Candidates:
    """Progressive example filtering (algorithm 1).

    The score set S begins with 10 rows and becomes 3 times larger in every stage, after which the best third of the
    candidates remains, or all m. In a balanced pool, every label keeps at least 4 rows for each row of its share.
    """
    order = draw.sample(range(len(pool)), len(pool))  # S is the beginning of this order
    most = min(len(pool), max(min(MAX_CANDIDATES, len(pool) // 10), SPARE * shots))
    scores, kept = np.zeros(len(pool)), np.arange(len(pool))
    contributions, size = np.empty((len(pool), 0)), FIRST_SCORED
    while True:
        scored = order[contributions.shape[1] : size]
        contributions = np.hstack([contributions, contributions_of(pool, kept.tolist(), scored)])
        others = contributions.shape[1] - _same(pool, kept, order[:size]).sum(axis=1)
        # Rows that help each of the others by the same, in the score set or not, have the same score.
        scores[kept] = (contributions.sum(axis=1) / np.maximum(others, 1)).round(12)
        target = max(most, math.ceil(len(kept) / FACTOR))
        ranked = np.argsort(-scores[kept], kind="stable").tolist()
        chosen = set(ranked[:target])
        for label, share in pool.shares(shots).items() if pool.balanced else ():
            of_label = [place for place in ranked if pool.rows[kept[place]].gold == label]
            chosen |= set(of_label[: SPARE * share])
        places = sorted(chosen)
        kept, contributions = kept[places], contributions[places]
        if target == most:
            return Candidates(kept, contributions, scores)
        size *= FACTOR


def contributions_of(pool: Pool, rows: list[int], scored: list[int]) -> Floats:
    """c(e, s) = p(y_s | e, x_s) - p(y_s | x_s) of rows e (first axis) and scored rows s; 0 for rows with one input."""
    probabilities = trials_of(pool).probabilities([(), *((row,) for row in rows)], scored)  # (1 + rows, scored, C)
    gold = probabilities[:, np.arange(len(scored)), pool.gold[scored]]
    return np.where(_same(pool, rows, scored), 0.0, gold[1:] - gold[0])


def _same(pool: Pool, rows: Sequence[int] | Ints, others: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each of the rows (first axis) has the input of each of the others."""
    return np.equal.outer(pool.inputs[rows], pool.inputs[others])


def search(pool: Pool, candidates: Candidates, shots: int, dev: list[int], draw: random.Random) -> Choice:
    """Diversity-guided search (algorithm 2): in every round, the B variants with the highest accuracy on the dev rows.

    It begins with B orders of the first set. Of the B variants of each set, half have a row substituted, and the others
    are reordered (the paper leaves B' open).
    """
    rows = Pool([pool.rows[row] for row in candidates.rows], balanced=pool.balanced)
    first = first_set(rows, candidates, shots)
    beam: list[Set] = [tuple(draw.sample(first, shots)) for _ in range(BEAM)]
    accuracy: dict[Set, float] = {}
    for _ in range(ROUNDS):
        variants = dict[Set, None]()
        for chosen in beam:
            places = draw.sample(range(shots), min(shots, BEAM // 2))
            variants |= dict.fromkeys(substitute(rows, candidates, chosen, place) for place in places)
            variants |= dict.fromkeys(tuple(draw.sample(chosen, shots)) for _ in range(BEAM - len(places)))
        new = [each for each in variants if each not in accuracy]
        tried = accuracies(pool, [candidates.rows[list(each)].tolist() for each in new], dev) if new else ()
        accuracy |= zip(new, map(float, tried), strict=True)
        beam = sorted(variants, key=accuracy.__getitem__, reverse=True)[:BEAM]  # the first one wins a tie
    return Choice(candidates.rows[list(beam[0])].tolist(), candidates.scores, ordered=True)


def first_set(pool: Pool, candidates: Candidates, shots: int) -> list[int]:
    """Candidates that maximise the sum over E of s(e, E - e), by greedy choice and exchange (the paper uses CPLEX).

    Each exchange of one row for the best other one must raise the sum, so that this ends.
    """
    chosen: list[int] = []
    left = dict(pool.shares(shots)) if pool.balanced else {}
    for _ in range(shots):
        gains = candidates.informativeness - 2 * DIVERSITY * candidates.similarities[:, chosen].sum(axis=1)
        gains[
            [*chosen, *(row for label, rows in pool.by_label.items() if left.get(label) == 0 for row in rows)]
        ] = -np.inf
        row = best(gains, ~np.isneginf(gains))
        chosen.append(row)
        if pool.balanced:
            left[str(pool.rows[row].gold)] -= 1
    while True:
        sets = [substitute(pool, candidates, tuple(chosen), place, 2 * DIVERSITY) for place in range(shots)]
        best_set = max(sets, key=lambda rows: objective(candidates, rows))
        if objective(candidates, best_set) <= objective(candidates, chosen) + 1e-12:
            return chosen
        chosen = list(best_set)


def objective(candidates: Candidates, rows: Sequence[int]) -> float:
    """The sum over e in E of s(e, E - e)."""
    chosen = list(rows)
    similar = candidates.similarities[np.ix_(chosen, chosen)]
    return float(candidates.informativeness[chosen].sum() - DIVERSITY * (similar.sum() - np.trace(similar)))


def substitute(pool: Pool, candidates: Candidates, chosen: Set, place: int, diversity: float = DIVERSITY) -> Set:
    """The set with another candidate e at a place: the one with the highest s(e, E') (Eq. 5), E' the rows that stay.

    s(e, E') = I(e, S) - lambda sum_(e' in E') sim(f(e), f(e')); of the same label if the pool of candidates is
    balanced. The set itself if there is no other candidate.
    """
    staying = [*chosen[:place], *chosen[place + 1 :]]
    scores = candidates.informativeness - diversity * candidates.similarities[:, staying].sum(axis=1)
    scores[list(chosen)] = -np.inf
    if pool.balanced:
        scores[[query.gold != pool.rows[chosen[place]].gold for query in pool.rows]] = -np.inf
    free = ~np.isneginf(scores)
    return (*chosen[:place], best(scores, free), *chosen[place + 1 :]) if free.any() else chosen
