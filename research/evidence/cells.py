"""T and eta as dev rows choose them, for every task, setting and seed."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import pandas as pd

from .load import in_order

CORE_ETAS = (0.01, 0.1)
PAPER = ("continued", 0.01)  # positions and eta of the paper, without momentum


def choices(rows: pd.DataFrame, etas: Collection[float] = CORE_ETAS) -> pd.DataFrame:
    """A row for every setting, task and seed whose grid is complete: T and eta chosen on its dev rows, and more.

    Complete is what has every eta of its setting with every T of any setting, on test and dev rows. Ties go to the
    smaller T, then to the smaller eta. `before` and `after` are rows of the test part.
    """
    found = []
    rows = rows[rows["eta"].isin(etas)]
    for setting, of_setting in rows.groupby("setting", observed=True):
        needed = set(product(of_setting["eta"].unique(), rows["t"].unique()))
        for (task, seed), job in of_setting.groupby(["task", "seed"], observed=True):
            parts = [job[job["part"] == part].set_index(["eta", "t"]) for part in ("test", "dev")]
            if any(set(part.index) != needed for part in parts) or not any(t == 1 for _, t in needed):
                continue
            test, dev = parts
            chosen = _best(dev["accuracy"])
            found.append(
                {
                    "setting": setting,
                    "task": task,
                    "seed": seed,
                    "eta": chosen[0],
                    "t": chosen[1],
                    "before": test.loc[(chosen[0], 1)],
                    "after": test.loc[chosen],
                }
            )
    columns = ["setting", "task", "seed", "eta", "t", "before", "after"]
    return in_order(pd.DataFrame(found, columns=columns))


def _best(accuracy: pd.Series) -> tuple[float, int]:
    """The (eta, T) of the highest accuracy, then of the smallest T, then of the smallest eta."""
    options = [(-value, t, eta) for (eta, t), value in accuracy.items()]
    _, t, eta = min(options)
    return eta, t
