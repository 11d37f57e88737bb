"""Significance of differences: Student's interval, Wilcoxon's signed-rank test."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.evaluation.metrics import mean_ci95


@dataclass(frozen=True)
class Spread:
    """Mean of `n` values and their sample standard deviation (n - 1); `sd` is None for one value."""

    mean: float
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Paired:
    """Differences after - before, pair by pair, and their statistics.

    They are rounded to twelve decimals, so that 0.3 - 0.2 and 0.2 - 0.1 are equal and tie in ranks.
    """

    steps: tuple[float, ...]

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> Paired:
        """The differences of at least one pair."""
        return cls(tuple(round(second - first, 12) for first, second in zip(before, after, strict=True)))

    @property
    def spread(self) -> Spread:
        """Their mean and standard deviation."""
        return Spread.of(self.steps)

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Student's 95 % interval of their mean; None for one difference, and for equal ones.

        Equal differences estimate no variance: an interval of width zero would claim certainty.
        """
        return mean_ci95(self.steps) if len(set(self.steps)) > 1 else None

    @property
    def wilcoxon_p(self) -> float | None:
        """Their exact two-sided Wilcoxon signed-rank p, ties and zeros included.

        Zeros are dropped and ties share their mean rank (Wilcoxon 1945). The null distribution is exact, over all 2^n
        signs of these ranks. None for fewer than two differences; 1 if all are zero.
        """
        import numpy as np

        if len(self.steps) < 2:
            return None
        nonzero = [step for step in self.steps if step]
        _, places, counts = np.unique(np.abs(nonzero), return_inverse=True, return_counts=True)
        ranks = (2 * counts.cumsum() - counts + 1)[places].tolist()  # doubled, so that the mean rank of a tie is whole
        ways = [1] + [0] * sum(ranks)  # ways[s]: sign patterns whose positive ranks add up to s
        for rank in ranks:
            for total in range(len(ways) - 1, rank - 1, -1):
                ways[total] += ways[total - rank]
        positive = sum(rank for rank, step in zip(ranks, nonzero, strict=True) if step > 0)
        smaller = min(positive, sum(ranks) - positive)
        return min(1.0, 2 * sum(ways[: smaller + 1]) / (1 << len(ranks)))
