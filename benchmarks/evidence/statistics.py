"""Student's intervals, rank correlation, and intervals of it; the other tests are those of `deepthink report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, t

from .measures import Floats, Ints

ROUNDS = 2000
Interval = tuple[float, float]


def cluster_interval(clusters: Sequence[object], statistic: Callable[[Ints], float], seed: int = 0) -> Interval | None:
    """95 % percentile interval of a statistic of row numbers, resampling whole clusters with replacement.

    Rounds in which the statistic is not defined (NaN) are left out. None for fewer than three clusters, or if it is
    defined in fewer than half of the rounds.
    """
    names = list(dict.fromkeys(clusters))
    if len(names) < 3:
        return None
    members = [np.array([place for place, name in enumerate(clusters) if name == each]) for each in names]
    generator = np.random.default_rng(seed)
    values = np.array(
        [
            statistic(np.concatenate([members[place] for place in generator.integers(len(names), size=len(names))]))
            for _ in range(ROUNDS)
        ]
    )
    defined = values[~np.isnan(values)]
    if len(defined) < ROUNDS / 2:
        return None
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def student(difference: float, error: float, freedom: float) -> tuple[Interval, float]:
    """Student's 95 % interval and p-value of a difference with this standard error.

    Without an error the interval is the difference, and without degrees of freedom it has no end; both have p = 1.
    """
    if not error > 0:
        return (difference, difference), 1.0
    if not freedom > 0:
        return (-np.inf, np.inf), 1.0
    low, high = t.interval(0.95, freedom, difference, error)
    return (float(low), float(high)), float(2 * t.sf(abs(difference) / error, freedom))


def over_tasks(mean: float, variances: Sequence[float], seeds: Sequence[int]) -> tuple[Interval, float]:
    """Student's interval and p of a mean over tasks, whose variances are those of means over so many seeds.

    The degrees of freedom are Welch's; there are none where a task has one seed.
    """
    total = sum(variances)
    spread = sum(each**2 / (number - 1) for each, number in zip(variances, seeds, strict=True) if number > 1)
    freedom = total**2 / spread if spread > 0 and min(seeds) > 1 else 0.0
    return student(mean, float(np.sqrt(total)) / len(seeds), freedom)


@dataclass(frozen=True)
class Spreads:
    """Mean standard deviations before and after, and the 95 % interval of the difference."""

    before: float
    after: float
    interval: Interval


def spreads(before: Sequence[Floats], after: Sequence[Floats], seed: int = 0) -> Spreads:
    """The standard deviations over the values of each group, at least two, mean over groups.

    The interval draws pairs of a value before and after within each group, with replacement; a sample of n values that
    is drawn so has (n - 1) / n of the variance, which is made good.
    """
    generator = np.random.default_rng(seed)
    drawn, whole = [], []
    for first, last in zip(before, after, strict=True):
        places = generator.integers(len(first), size=(ROUNDS, len(first)))
        scale = np.sqrt(len(first) / (len(first) - 1))
        drawn.append(scale * (last[places].std(axis=1, ddof=1) - first[places].std(axis=1, ddof=1)))
        whole.append([first.std(ddof=1), last.std(ddof=1)])
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    means = np.mean(whole, axis=0)
    return Spreads(float(means[0]), float(means[1]), (float(low), float(high)))


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's correlation, ties with their mean rank; NaN if one of them does not vary."""
    return correlation(rankdata(first), rankdata(second))


def ranks_within(values: Floats, groups: Sequence[object]) -> Floats:
    """Ranks within each group, from -1/2 to 1/2: without differences between groups."""
    ranks = np.empty(len(values))
    for group in dict.fromkeys(groups):
        inside = np.array([each == group for each in groups])
        inner = rankdata(values[inside])
        ranks[inside] = (inner - inner.mean()) / max(1, len(inner) - 1)
    return ranks


def correlation(first: Floats, second: Floats) -> float:
    """Pearson's correlation; NaN if one of them does not vary."""
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum() / scale) if scale > 1e-12 else float("nan")
