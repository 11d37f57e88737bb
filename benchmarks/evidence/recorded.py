"""Comparisons of techniques, of which accuracies and areas were kept and the scores of every row were not.

They are computed from the rows that `benchmarks/techniques.py` wrote: one for each arm, correction, task and seed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

from benchmarks.table1.page import Model
from benchmarks.table1.runs import BASELINE, LABELS

from .discrimination import Difference

FILE = "techniques.jsonl"
SLOW = ("lens", "influence")
ONCE, AREA = "deep-thinking T=1", "AUC"
CORRECTIONS = {"accuracy": "none", "fitted": "fitted", "batch": "batch"}


@dataclass(frozen=True, eq=False)
class Recorded:
    """An arm beside another one; `correction` is the arm's own where it is a correction that replaces the scores.

    No T is chosen, so that no cell is `unchanged`.
    """

    name: str
    rows: pd.DataFrame
    arm: str
    beside: str = ONCE
    correction: str = ""
    unchanged: int = 0

    @property
    def labels(self) -> int:
        """How many labelled rows beyond the demonstrations the arm uses whatever is corrected."""
        used = self.rows.set_index(["arm", "correction"])["labels"]
        return int(used[(self.arm, self.correction or "none")].max() - used[(self.beside, "none")].max())

    @cached_property
    def cells(self) -> list[tuple[str, int]]:
        """Tasks and seeds that both arms have."""
        return list(self._both("accuracy").index)

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Those of the measures that were kept, by name."""
        names = [name for name in (*CORRECTIONS, AREA) if name != "batch" or not self.correction]
        return {name: _difference(both) for name in names if len(both := self._both(name).dropna())}

    def _both(self, measure: str) -> pd.DataFrame:
        sides = [self._of(self.beside, measure, ""), self._of(self.arm, measure, self.correction)]
        return pd.concat(sides, axis=1, join="inner", keys=["before", "after"])

    def _of(self, arm: str, measure: str, correction: str) -> pd.Series[float]:
        kept = correction or CORRECTIONS.get(measure, "none")
        return measured(self.rows, arm, kept, measure)


def measured(rows: pd.DataFrame, arm: str, correction: str, measure: str) -> pd.Series[float]:
    """A measure of an arm with a correction, by task and seed; the area, or the accuracy."""
    kept = rows[(rows["arm"] == arm) & (rows["correction"] == correction)].set_index(["task", "seed"])
    return kept["auc"] if measure == AREA else kept["right"] / kept["n"]


def recorded(rows: pd.DataFrame, sampled: Collection[str] = ()) -> Iterator[Recorded]:
    """Every technique beside one reading, and an ensemble beside thinking, as far as they were run.

    Those of `sampled`, whose rows' scores are kept elsewhere, are left out.
    """
    found = [
        Recorded("`composed`: demonstrations read apart", rows, "composed T=1"),
        Recorded("`ensemble-3`: three orders, mean log p", rows, "ensemble-3 T=1"),
        Recorded(
            "`ensemble-3` against thinking (T = 5, eta 0.1, restarted)", rows, "ensemble-3 T=1", "deep-thinking T=5"
        ),
        Recorded("`ct-kv`: the memory is trained by gradients", rows, "ct-kv T=1"),
        Recorded("nearest mean hidden state of labelled rows", rows, "centroid T=1", correction="centroid"),
    ]
    return (each for each in found if each.cells and each.arm.partition(" ")[0] not in sampled)


def of_table1(model: Model | None) -> Iterator[Recorded]:
    """The choices of Table 1 that are too slow to be run on more rows, beside random demonstrations."""
    if model is None:
        return
    rows = [
        {"arm": method, "correction": correction, "task": task, "seed": seed, "n": 1, "right": right, "labels": labels}
        for method, labels in ((BASELINE, 0), *((name, LABELS[name]) for name in SLOW))
        for correction, kind in (("none", "plain"), ("batch", "plain batch"))
        for (task, seed), right in model.accuracies_of(method, kind).items()
    ]
    table = pd.DataFrame(rows).assign(auc=np.nan)
    for name in SLOW:
        if name in model.complete:
            yield Recorded(f"`{name}` demonstrations", table, name, BASELINE)


def read_techniques(folder: Path) -> pd.DataFrame:
    """The rows of `benchmarks/techniques.py` in a folder of evidence; none if there is no file."""
    path = folder / FILE
    return pd.read_json(path, lines=True) if path.exists() else no_techniques()


def no_techniques() -> pd.DataFrame:
    """A table without rows."""
    return pd.DataFrame(columns=["arm", "correction", "task", "seed", "n", "right", "auc", "labels"])


def _difference(both: pd.DataFrame) -> Difference:
    """The means over tasks; interval and p are Student's over seeds in tasks, with Welch's degrees of freedom.

    Where seeds do not vary, or a task has one, the interval has no end.
    """
    before, after = both.groupby("task").mean().mean().tolist()
    steps = (both["after"] - both["before"]).groupby("task")
    numbers, errors = steps.size(), steps.var() / steps.size()
    total = float(errors.sum(skipna=False))
    if not total > 0:
        return Difference(before, after, after - before, (-np.inf, np.inf), 1.0)
    error, freedom = np.sqrt(total) / len(numbers), total**2 / float((errors**2 / (numbers - 1)).sum())
    low, high = t.interval(0.95, freedom, after - before, error)
    return Difference(before, after, after - before, (low, high), float(2 * t.sf(abs(after - before) / error, freedom)))
