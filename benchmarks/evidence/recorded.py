"""Comparisons of techniques, of which accuracies and areas were kept and the scores of every row were not.

They are computed from the rows that `benchmarks/techniques.py` wrote: one for each arm, correction, task and seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.table1.page import Model
from benchmarks.table1.runs import BASELINE, LABELS, SLOW

from .discrimination import Difference
from .methods import TECHNIQUES
from .pooled import estimate

FILE = "techniques.jsonl"
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
    over_seeds_alone: bool = True

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


def recorded(rows: pd.DataFrame) -> Iterator[Recorded]:
    """Every technique beside one reading, as far as it was run."""
    found = [
        *(Recorded(f"`{name}`: {words}", rows, f"{name} T=1") for name, words in TECHNIQUES.items()),
        Recorded("nearest mean hidden state of labelled rows", rows, "centroid T=1", correction="centroid"),
    ]
    return (each for each in found if each.cells)


@dataclass(frozen=True, eq=False)
class OfTable1:
    """A choice of demonstrations of Table 1 that is too slow to be run on more rows, beside random ones."""

    method: str
    model: Model
    unchanged: int = 0
    over_seeds_alone: bool = False

    @property
    def name(self) -> str:
        """The line's name."""
        return f"`{self.method}` demonstrations"

    @property
    def labels(self) -> int:
        """How many labels the demonstrations were chosen by."""
        return LABELS[self.method]

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Its tasks and seeds."""
        return list(self.model.accuracies_of(self.method, "plain").index)

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """By the two measures whose answers are kept."""
        kinds = {"accuracy": "plain", "batch": "plain batch"}
        return {name: self.model.change((BASELINE, kind), (self.method, kind)) for name, kind in kinds.items()}


def of_table1(model: Model | None) -> Iterator[OfTable1]:
    """LENS and influence, as far as they have every task and seed."""
    return (OfTable1(name, model) for name in SLOW if model is not None and name in model.complete)


def read_techniques(folder: Path) -> pd.DataFrame:
    """The rows of `benchmarks/techniques.py` in a folder of evidence; none if there is no file."""
    path = folder / FILE
    return pd.read_json(path, lines=True) if path.exists() else no_techniques()


def no_techniques() -> pd.DataFrame:
    """A table without rows."""
    return pd.DataFrame(columns=["arm", "correction", "task", "seed", "n", "right", "auc", "labels"])


def _difference(both: pd.DataFrame) -> Difference:
    """The means over tasks; where seeds do not vary, or a task has one, the interval has no end."""
    before, after = both.groupby("task").mean().mean().tolist()
    steps = both["after"] - both["before"]
    change = estimate(steps.to_numpy(), list(steps.index))
    return Difference(before, after, after - before, change.interval or (-np.inf, np.inf), change.p)
