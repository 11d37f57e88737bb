"""Means over all cells with intervals over (task, seed) pairs, and how often thinking helps or harms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from deepthink_cli.report.significance import discordant

from .cells import HARMS, HELPS, SAME, verdict
from .measures import Floats
from .statistics import Interval, cluster_interval


@dataclass(frozen=True)
class Estimate:
    """A mean over cells and its 95 % interval over (task, seed) pairs; None for fewer than three pairs."""

    mean: float
    interval: Interval | None

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies on one side of zero, otherwise 0."""
        if self.interval is None:
            return 0
        low, high = self.interval
        return int(low > 0) - int(high < 0)


def estimate(values: Sequence[float] | Floats, clusters: Sequence[object]) -> Estimate:
    """The mean of values, one for each cell, of which there must be at least one."""
    numbers = np.asarray(values, dtype=float)
    return Estimate(float(numbers.mean()), cluster_interval(clusters, lambda chosen: float(numbers[chosen].mean())))


@dataclass(frozen=True)
class Summary:
    """All cells of a table of choices together: accuracies, differences, and verdicts on single cells.

    `plain`, `thinking` and `oracle` are mean accuracies; `calibrated_plain` and `calibrated_thinking` the same after
    batch calibration; `explained` is the difference of the raw and the calibrated gain; `kept_first` counts the cells
    for which dev rows chose T = 1.
    """

    cells: int
    plain: float
    thinking: float
    oracle: float
    gain: Estimate
    calibrated_plain: float
    calibrated_thinking: float
    calibrated_gain: Estimate
    calibration: Estimate
    calibration_over_gain: Estimate
    explained: Estimate
    true_gain: Estimate
    helps: int
    harms: int
    same: int
    kept_first: int


def summary(chosen: pd.DataFrame) -> Summary:
    """Summarize choices, of which there must be at least one."""
    values = {
        name: np.array([row[key] for row in chosen[column]])
        for name, column, key in (
            ("plain", "before", "accuracy"),
            ("thinking", "after", "accuracy"),
            ("calibrated_plain", "before", "calibrated"),
            ("calibrated_thinking", "calibrated_after", "calibrated"),
            ("true_plain", "before", "true"),
            ("true_thinking", "after", "true"),
        )
    }
    clusters = list(zip(chosen["task"], chosen["seed"], strict=True))
    gain = values["thinking"] - values["plain"]
    calibrated = values["calibrated_thinking"] - values["calibrated_plain"]
    counts = verdicts(chosen)
    return Summary(
        cells=len(chosen),
        plain=float(values["plain"].mean()),
        thinking=float(values["thinking"].mean()),
        oracle=float(chosen["oracle"].mean()),
        gain=estimate(gain, clusters),
        calibrated_plain=float(values["calibrated_plain"].mean()),
        calibrated_thinking=float(values["calibrated_thinking"].mean()),
        calibrated_gain=estimate(calibrated, clusters),
        calibration=estimate(values["calibrated_plain"] - values["plain"], clusters),
        calibration_over_gain=estimate(values["calibrated_plain"] - values["thinking"], clusters),
        explained=estimate(gain - calibrated, clusters),
        true_gain=estimate(values["true_thinking"] - values["true_plain"], clusters),
        helps=counts[HELPS],
        harms=counts[HARMS],
        same=counts[SAME],
        kept_first=int((chosen["t"] == 1).sum()),
    )


def verdicts(chosen: pd.DataFrame) -> Counter[str]:
    """How many cells are helped, harmed, or neither, by McNemar's test on each cell's test rows."""
    pairs = zip(chosen["before"], chosen["after"], strict=True)
    return Counter(verdict(discordant(first["right"], last["right"])) for first, last in pairs)
