"""Means over tasks of means over seeds, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .measures import Floats
from .statistics import Interval, over_seeds, over_seeds_and_rows, over_tasks


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, which is None if it has no end, and the p-value of a mean of 0."""

    mean: float
    interval: Interval | None
    p: float = 1.0


def estimate(values: Sequence[float | Floats] | Floats, pairs: Sequence[tuple[str, int]]) -> Estimate:
    """The mean over tasks of means over seeds of values, of which each pair of a task and a seed may have several.

    Interval and p are Student's: over the seeds and rows of the tasks for values [rows], over the seeds alone for
    numbers.
    """
    of_pairs: dict[tuple[str, int], list[float | Floats]] = {}
    for pair, value in zip(pairs, values, strict=True):
        of_pairs.setdefault(pair, []).append(value)
    of_tasks = [
        np.stack([np.mean(own, axis=0) for (name, _), own in of_pairs.items() if name == task])
        for task in dict.fromkeys(name for name, _ in of_pairs)
    ]
    mean = float(np.mean([seeds.mean() for seeds in of_tasks]))
    variances = [over_seeds(seeds) if seeds.ndim == 1 else over_seeds_and_rows(seeds) for seeds in of_tasks]
    if not 0 < sum(each.estimate for each in variances) < np.inf:  # equal values, or a task that has one seed
        return Estimate(mean, None)
    return Estimate(mean, *over_tasks(mean, variances))
