"""Thinking against T = 1: T and eta chosen on dev rows for every task, setting and seed, and every T of the grid."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd

from deepthink_cli.evaluation.metrics import ALPHA
from deepthink_cli.report.significance import Discordant, discordant

from .load import in_order
from .measures import Bools, Floats
from .statistics import Interval, over_seeds_and_rows, over_tasks

CORE_ETAS = (0.01, 0.1)
PAPER = ("continued", 0.01)  # positions and eta of the paper, without momentum
HELPS, HARMS, SAME = "helps", "harms", "no difference shown"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Accuracies of one task before and after, one for each seed, and the inputs whose answer changed.

    `gains` is 1.0 for an input that is right only after, and -1.0 for one that is right only before [seeds, rows].
    `better` and `worse` count the seeds with significantly more or fewer right answers by McNemar's test.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    changes: tuple[Discordant, ...]
    gains: Floats

    @classmethod
    def of(cls, before: Sequence[Bools], after: Sequence[Bools]) -> Comparison:
        """Compare the right answers of each seed, before and after, input by input."""
        changes = tuple(discordant(x.tolist(), y.tolist()) for x, y in zip(before, after, strict=True))
        gains = np.stack(after).astype(np.float64) - np.stack(before)
        return cls(tuple(float(x.mean()) for x in before), tuple(float(x.mean()) for x in after), changes, gains)

    @property
    def mean(self) -> float:
        """The mean difference."""
        return float(self.gains.mean())

    @property
    def interval(self) -> Interval | None:
        """Student's 95 % interval of the difference over seeds and rows; None for one seed."""
        return None if len(self.before) < 2 else self._tested[0]

    @property
    def p(self) -> float | None:
        """Student's p of the same; None for one seed."""
        return None if len(self.before) < 2 else self._tested[1]

    @cached_property
    def _tested(self) -> tuple[Interval, float]:
        return over_tasks(self.mean, [over_seeds_and_rows(self.gains)])

    @property
    def gained(self) -> int:
        """Inputs that are right only after, summed over seeds."""
        return sum(change.gained for change in self.changes)

    @property
    def lost(self) -> int:
        """Inputs that are right only before, summed over seeds."""
        return sum(change.lost for change in self.changes)

    @property
    def verdicts(self) -> list[str]:
        """What McNemar's test says of each seed."""
        return [verdict(change) for change in self.changes]

    @property
    def better(self) -> int:
        """Seeds that are significantly better."""
        return self.verdicts.count(HELPS)

    @property
    def worse(self) -> int:
        """Seeds that are significantly worse."""
        return self.verdicts.count(HARMS)


def verdict(change: Discordant) -> str:
    """Whether thinking helps, harms, or no difference is shown, by McNemar's exact test at 5 %."""
    if change.p >= ALPHA:
        return SAME
    return HELPS if change.gained > change.lost else HARMS


def choices(rows: pd.DataFrame, etas: Collection[float] = CORE_ETAS) -> pd.DataFrame:
    """A row for every setting, task and seed whose grid is complete: T and eta chosen on its dev rows, and more.

    Complete is what has every eta of its setting with every T of any setting, on test and dev rows. Ties go to the
    smaller T, then to the smaller eta. `before` and `after` are rows of the test part, `oracle` its best accuracy,
    `calibrated_after` the row that is best on dev rows after batch calibration.
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
            chosen, calibrated = _best(dev["accuracy"]), _best(dev["calibrated"])
            found.append(
                {
                    "setting": setting,
                    "task": task,
                    "seed": seed,
                    "eta": chosen[0],
                    "t": chosen[1],
                    "before": test.loc[(chosen[0], 1)],
                    "after": test.loc[chosen],
                    "calibrated_after": test.loc[calibrated],
                    "oracle": float(test["accuracy"].max()),
                }
            )
    columns = ["setting", "task", "seed", "eta", "t", "before", "after", "calibrated_after", "oracle"]
    return in_order(pd.DataFrame(found, columns=columns))


def compare_chosen(chosen: pd.DataFrame, calibrated: bool = False) -> Comparison:
    """T = 1 against the T and eta that dev rows chose; with `calibrated`, both after batch calibration."""
    name, after = ("calibrated_right", "calibrated_after") if calibrated else ("right", "after")
    return Comparison.of([row[name] for row in chosen["before"]], [row[name] for row in chosen[after]])


def fixed(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for every setting, task, eta and T > 1 of the test part, compared with T = 1 over the seeds that have it.

    `seeds` is their number; `raw` and `calibrated` are comparisons, `first` and `last` the test rows at T = 1 and T.
    """
    found = []
    test = rows[rows["part"] == "test"]
    for (setting, task, eta), of_cell in test.groupby(["setting", "task", "eta"], observed=True):
        firsts = of_cell[of_cell["t"] == 1].set_index("seed")
        for t, at in of_cell[of_cell["t"] > 1].groupby("t"):
            last = at.set_index("seed")
            seeds = [seed for seed in last.index if seed in firsts.index]
            if seeds:
                first, last = firsts.loc[seeds], last.loc[seeds]
                raw = Comparison.of(list(first["right"]), list(last["right"]))
                calibrated = Comparison.of(list(first["calibrated_right"]), list(last["calibrated_right"]))
                values = (setting, task, eta, t, len(seeds), raw, calibrated, first, last)
                found.append(values)
    columns = ["setting", "task", "eta", "t", "seeds", "raw", "calibrated", "first", "last"]
    return in_order(pd.DataFrame(found, columns=columns))


def _best(accuracy: pd.Series) -> tuple[float, int]:
    """The (eta, T) of the highest accuracy, then of the smallest T, then of the smallest eta."""
    options = [(-value, t, eta) for (eta, t), value in accuracy.items()]
    _, t, eta = min(options)
    return eta, t
