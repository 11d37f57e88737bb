"""Student's intervals over seeds and rows, and of a change of standard deviations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

Floats = NDArray[np.float64]
Interval = tuple[float, float]


def student(difference: float, error: float, freedom: float) -> tuple[Interval, float]:
    """Student's 95 % interval and p-value of a difference with this standard error.

    Without an error the interval is the difference, and without degrees of freedom it has no end; both have p = 1.
    """
    if not error > 1e-12:  # rounding
        return (difference, difference), 1.0
    if not freedom > 0:
        return (-np.inf, np.inf), 1.0
    low, high = t.interval(0.95, freedom, difference, error)
    return (float(low), float(high)), float(2 * t.sf(abs(difference) / error, freedom))


@dataclass(frozen=True)
class Variance:
    """The estimated variance of a mean, and the sum of the squares of its terms over their degrees of freedom.

    The latter gives the degrees of freedom of a sum of such estimates (Satterthwaite 1946).
    """

    estimate: float
    spread: float


def over_seeds_and_rows(values: Floats) -> Variance:
    """The variance of the mean of values [seeds, rows], both drawn at random and every row read with every seed.

    It is (M_seeds + M_rows - M_rest) / (seeds rows) with the mean squares of the two-way analysis of variance (crossed
    random effects), and at least what seeds alone or rows alone give. Resampling both would count M_rest three times
    (Owen 2007, "The pigeonhole bootstrap").
    """
    seeds, rows = values.shape
    if seeds < 2 or rows < 2:
        return Variance(np.inf, np.inf)
    by_seed, by_row = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
    rest = values - by_seed - by_row + values.mean()
    freedoms = seeds - 1, rows - 1, (seeds - 1) * (rows - 1)
    of_seeds, of_rows = float(by_seed.var(ddof=1)) / seeds, float(by_row.var(ddof=1)) / rows
    of_rest = float((rest**2).sum()) / freedoms[2] / (seeds * rows)
    terms = (of_seeds, of_rows, of_rest)
    spread = sum(term**2 / freedom for term, freedom in zip(terms, freedoms, strict=True))
    return Variance(max(of_seeds, of_rows, of_seeds + of_rows - of_rest), spread)


def over_tasks(mean: float, variances: Sequence[Variance]) -> tuple[Interval, float]:
    """Student's interval and p of a mean over tasks with the variances of their means."""
    total, spread = sum(each.estimate for each in variances), sum(each.spread for each in variances)
    known = 0 < spread < np.inf
    return student(mean, float(np.sqrt(total)) / len(variances), total**2 / spread if known else 0.0)


@dataclass(frozen=True)
class Spreads:
    """Mean standard deviations before and after, and Student's 95 % interval of the difference over groups."""

    before: float
    after: float
    interval: Interval


def spreads(before: Sequence[Floats], after: Sequence[Floats]) -> Spreads:
    """The standard deviations over the values of each group, at least two, mean over groups."""
    first, last = (np.array([values.std(ddof=1) for values in side]) for side in (before, after))
    steps, number = last - first, len(first)
    error = float(steps.std(ddof=1)) / np.sqrt(number) if number > 1 else np.inf
    return Spreads(float(first.mean()), float(last.mean()), student(float(steps.mean()), error, number - 1)[0])
