"""Methods on the same tasks and seeds, and their ranks, with Friedman's test and the critical difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from deepthink_cli.experiments.results import Result, grouped
from deepthink_cli.report.arms import varying
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds, on_common_inputs
from deepthink_cli.report.tables import TaskScore, in_order, scores_of

FEWEST_METHODS, FEWEST_BLOCKS = 3, 5


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over blocks, the best first; rank 1 is the highest accuracy of a block.

    `p` is of Friedman's test in Iman and Davenport's form. Two methods whose mean ranks differ by less than
    `critical_difference` are not shown to differ at the 5 % level (Nemenyi).
    """

    ranks: Mapping[str, float]
    means: Mapping[str, float]
    blocks: int
    p: float
    critical_difference: float

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The largest sets of neighbouring methods that are not shown to differ, of at least two methods each."""
        names, found = list(self.ranks), list[tuple[int, int]]()
        for first, last in combinations(range(len(names)), 2):
            if self.ranks[names[last]] - self.ranks[names[first]] < self.critical_difference:
                found.append((first, last))
        largest = [(a, b) for a, b in found if not any((c <= a and b <= d) and (a, b) != (c, d) for c, d in found)]
        return [tuple(names[first : last + 1]) for first, last in largest]


def rank(accuracies: Mapping[str, Sequence[float]]) -> Ranking | str:
    """The ranking of methods by their accuracies on the same blocks, or the reason, in one line, why there is none.

    Equal accuracies of a block share their mean rank. The statistic is F = (N - 1) X / (N (k - 1) - X) with k - 1 and
    (k - 1) (N - 1) degrees of freedom, X being Friedman's chi-square with the correction for ties; the critical
    difference is q sqrt(k (k + 1) / (6 N)) (Demsar 2006, section 3.2.2).
    """
    methods, blocks = len(accuracies), len(next(iter(accuracies.values()), ()))
    if methods < FEWEST_METHODS or blocks < FEWEST_BLOCKS:
        return (
            f"too few to rank: {methods} methods on {blocks} pairs of a task and a seed that all of them have; "
            f"Friedman's test needs {FEWEST_METHODS} and {FEWEST_BLOCKS}"
        )
    import numpy as np
    from scipy.special import fdtrc
    from scipy.stats import rankdata, studentized_range

    table = np.array(list(accuracies.values())).T  # (N, k)
    ranks_Nk = rankdata(-table.round(12), axis=1)
    mean_ranks = ranks_Nk.mean(axis=0)
    within = ((ranks_Nk - (methods + 1) / 2) ** 2).sum() / (blocks * (methods - 1))
    between = blocks * ((mean_ranks - (methods + 1) / 2) ** 2).sum()
    statistic = float(between / within) if within else 0.0
    left = blocks * (methods - 1) - statistic
    f = (blocks - 1) * statistic / left if left > 1e-9 else math.inf
    p = float(fdtrc(methods - 1, (methods - 1) * (blocks - 1), f)) if math.isfinite(f) else 0.0
    q = float(studentized_range.ppf(0.95, methods, math.inf)) / math.sqrt(2)
    names = sorted(accuracies, key=lambda name: (mean_ranks[list(accuracies).index(name)], name))
    by_name = dict(zip(accuracies, mean_ranks.tolist(), strict=True))
    means = dict(zip(accuracies, table.mean(axis=0).tolist(), strict=True))
    return Ranking(
        {name: by_name[name] for name in names},
        {name: means[name] for name in names},
        blocks,
        p,
        q * math.sqrt(methods * (methods + 1) / (6 * blocks)),
    )


COMPARED = (
    "sampling",
    "pool_size",
    "balanced",
    "technique",
    "calibration",
    "scoring",
    "update",
)  # fields that distinguish ranked methods


Block = tuple[str, Seed]


def ranking_of(jobs: Sequence[JobResults], iteration: int | None = None) -> Ranking | str | None:
    """The ranks of `methods_of`; one line of text if there are too few tasks, seeds or methods."""
    methods = methods_of(jobs, iteration)
    return rank(methods) if isinstance(methods, dict) else methods


def methods_of(jobs: Sequence[JobResults], iteration: int | None = None) -> dict[str, list[float]] | str | None:
    """The accuracies of every arm at the reported T, and of every baseline, by method and block; random ones first.

    None if arms differ only in the reading; one line of text if they cannot be compared. A block is a pair of a task
    and a seed that all methods have, with their common inputs. Seeds with the same demonstrations are one.
    """
    if not set(varying([job.arm for job in jobs])) & set(COMPARED):
        return None
    if "limit" in varying([job.arm for job in jobs]):
        return "there are several samples of the test rows; choose one with --where limit=N"
    scores = scores_of(jobs, iteration)
    by_arm = grouped(scores, lambda each: each.arm)
    arms = sorted(in_order(by_arm, jobs), key=lambda arm: arm.sampling != "random")
    names = varying(arms)
    results: dict[str, dict[Block, Result]] = {}
    digests: dict[Block, list[str]] = {}
    for arm in arms:
        for each in by_arm[arm]:
            block = each.task, each.seed
            digests.setdefault(block, []).append(each.demonstrations)
            for name, result in _methods(names, each):
                results.setdefault(name, {})[block] = result
    common = set.intersection(*(set(blocks) for blocks in results.values())) if results else set()
    ordered = [block for block in next(iter(results.values()), {}) if block in common]
    ordered = different_seeds(ordered, lambda block: (block[0], *digests[block]))
    answers = [on_common_inputs([blocks[block] for blocks in results.values()]) for block in ordered]
    known = [[sum(right) / len(right) for right in of_block] for of_block in answers]
    return {name: [accuracies[place] for accuracies in known] for place, name in enumerate(results)}


def _methods(names: Sequence[str], score: TaskScore) -> Iterator[tuple[str, Result]]:
    """The names of an arm's baseline, if any, and of the arm, with their results on one task."""
    arm, comparison = score.arm, score.comparison
    if comparison.baseline is not None:
        yield ", ".join(filter(None, [arm.baseline_label(names, short=True), "T = 1"])), comparison.baseline
    last = [] if arm.is_read_once else ["T"]
    yield ", ".join(filter(None, [arm.label(names, short=True), *last])), comparison.result
