"""Means over tasks of means over seeds with intervals, and how often thinking helps or harms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from deepthink_cli.report.significance import discordant

from .cells import HARMS, HELPS, SAME, verdict
from .measures import Floats
from .statistics import Interval, over_tasks


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, which is None if it has no end, and the p-value of a mean of 0."""

    mean: float
    interval: Interval | None
    p: float = 1.0

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies on one side of zero, otherwise 0."""
        if self.interval is None:
            return 0
        low, high = self.interval
        return int(low > 0) - int(high < 0)


def estimate(values: Sequence[float] | Floats, pairs: Sequence[tuple[str, int]]) -> Estimate:
    """The mean over tasks of means over seeds of values, of which each pair of a task and a seed may have several.

    Interval and p are Student's over the seeds of the tasks, with Welch's degrees of freedom: the chance of which test
    rows were drawn is left out.
    """
    of_pairs = pd.Series(np.asarray(values, dtype=float), pd.MultiIndex.from_tuples(pairs)).groupby(level=[0, 1]).mean()
    seeds = of_pairs.groupby(level=0)
    mean, variances = float(seeds.mean().mean()), list(seeds.var() / seeds.size())
    if not sum(variances) > 0:  # also where a task has one seed
        return Estimate(mean, None)
    return Estimate(mean, *over_tasks(mean, variances, list(seeds.size())))


@dataclass(frozen=True)
class Summary:
    """Verdicts on the choices of a table, and the mean accuracy of the best T and eta on the test rows (`oracle`).

    `kept_first` counts the choices of T = 1.
    """

    runs: int
    oracle: float
    helps: int
    harms: int
    same: int
    kept_first: int


def summary(chosen: pd.DataFrame) -> Summary:
    """Summarize choices, of which there must be at least one."""
    counts = verdicts(chosen)
    return Summary(
        runs=len(chosen),
        oracle=float(chosen["oracle"].mean()),
        helps=counts[HELPS],
        harms=counts[HARMS],
        same=counts[SAME],
        kept_first=int((chosen["t"] == 1).sum()),
    )


def verdicts(chosen: pd.DataFrame) -> Counter[str]:
    """How many cells are helped, harmed, or neither, by McNemar's test on each cell's test rows."""
    pairs = zip(chosen["before"], chosen["after"], strict=True)
    return Counter(verdict(discordant(first["right"], last["right"])) for first, last in pairs)
