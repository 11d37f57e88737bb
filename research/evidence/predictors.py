"""What is known before thinking (or after its second reading), against what thinking gains: rank correlations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .load import in_order
from .statistics import Interval, correlation, permuted_p, rank_correlation, ranks_within, seed_interval

PREDICTORS = {
    "largest": "label bias of T = 1 (largest share of one predicted label)",
    "from_uniform": "distance of T = 1's predicted labels from uniform",
    "margin": "margin of T = 1 (mean of the best minus the second-best log p)",
    "length": "L, demonstration tokens",
    "drift": "drift at the second reading (how far it moves the memory, relative to its size)",
    "drift_per_eta": "drift at the second reading divided by eta",
    "accuracy": "accuracy of T = 1 on dev rows (needs their labels)",
}


@dataclass(frozen=True)
class Correlation:
    """Spearman's correlation over `n` cells of `pairs` of a task and a seed, and within cells of one task and setting.

    `within` is the correlation of ranks among the seeds of each task, setting and eta, and `within_p` how often it is
    as far from zero where the seeds of each task change places.
    """

    name: str
    n: int
    pairs: int
    overall: float
    interval: Interval | None
    within: float
    within_p: float | None


def gain_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for every (setting, eta, task, seed): the predictors, and the gain over T = 1.

    `gain` is the mean test accuracy over T > 1 minus that of T = 1, so that nothing is chosen; `calibrated_gain` the
    same after batch calibration. Predictors that depend on predictions come from the dev rows, so that a gain on the
    test rows is not compared with the same rows' noise. Only cells with every T that any setting has.
    """
    found, needed = [], set(rows["t"])
    for setting, of_setting in rows.groupby("setting", observed=True):
        for (task, seed, eta), job in of_setting.groupby(["task", "seed", "eta"], observed=True):
            test, dev = (job[job["part"] == part].set_index("t") for part in ("test", "dev"))
            if set(test.index) != needed or 1 not in dev.index or len(test) < 2 or 1 not in test.index:
                continue
            first, later = dev.loc[1], test[test.index > 1]
            drift = float(test["drift"].get(2, np.nan))
            found.append(
                {
                    "setting": setting,
                    "task": task,
                    "seed": seed,
                    "eta": eta,
                    "gain": float(later["accuracy"].mean() - test["accuracy"][1]),
                    "calibrated_gain": float(later["calibrated"].mean() - test["calibrated"][1]),
                    "drift": drift,
                    "drift_per_eta": drift / eta,
                    **{
                        name: float(first[name]) for name in ("largest", "from_uniform", "margin", "length", "accuracy")
                    },
                }
            )
    columns = ["setting", "task", "seed", "eta", "gain", "calibrated_gain", *PREDICTORS]
    return in_order(pd.DataFrame(found, columns=columns))


def correlations(cells: pd.DataFrame, gain: str = "gain") -> list[Correlation]:
    """Rank correlation of every predictor with the gain; none for predictors that are not known or do not vary.

    At least three (task, seed) pairs must have them.
    """
    results = []
    for name in PREDICTORS:
        known = cells.dropna(subset=[name, gain])
        if len(known[["task", "seed"]].drop_duplicates()) < 3 or known[name].nunique() < 2 or known[gain].nunique() < 2:
            continue
        results.append(_correlation(name, known, gain))
    return results


def _correlation(name: str, cells: pd.DataFrame, gain: str) -> Correlation:
    first, second = cells[name].to_numpy(float), cells[gain].to_numpy(float)
    groups = list(zip(cells["setting"], cells["eta"], cells["task"], strict=True))
    inner = ranks_within(first, groups), ranks_within(second, groups)
    pairs = list(zip(cells["task"], cells["seed"], strict=True))
    whole = [(task, seed, group[:2]) for (task, seed), group in zip(pairs, groups, strict=True)]
    return Correlation(
        name,
        len(cells),
        len(set(pairs)),
        rank_correlation(first, second),
        seed_interval(pairs, lambda chosen: rank_correlation(first[chosen], second[chosen])),
        correlation(*inner),
        permuted_p(whole, lambda order: correlation(inner[0], inner[1][order])),
    )
