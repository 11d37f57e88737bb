"""What else was varied: each variation is thinking beside one reading of the same demonstrations, on the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from deepthink_cli.experiments.results import Result
from deepthink_cli.report.significance import t_interval

from .cells import PAPER
from .discrimination import Compared, Difference, compare, pairs_at
from .load import Evidence
from .measures import Floats
from .methods import T
from .pooled import Estimate
from .statistics import Spreads, spreads

_, ETA = PAPER  # where nothing else is said


@dataclass(frozen=True)
class Variation:
    """A folder of runs, which of its rows, and T; `eta` where it is not the paper's."""

    name: str
    folder: str
    t: int = T
    eta: float = ETA
    where: dict[str, object] = field(default_factory=dict)

    def rows(self, evidence: Evidence) -> pd.DataFrame:
        """Its rows at every T; orders of the same demonstrations count as seeds."""
        rows = evidence.folder(self.folder)
        for name, value in self.where.items():
            rows = rows[rows[name] == value]
        return rows.assign(seed=rows["order"]) if self.folder == "orders" else rows


VARIATIONS = (
    Variation("the paper's setting, on these rows", "own"),
    *(Variation(f"eta {eta:g}", "etas", eta=eta) for eta in (0.001, 0.3)),
    *(Variation(f"eta {eta:g}, T = 15", "long", 15, eta) for eta in (0.01, 0.1)),
    *(Variation(f"{shots} demonstrations", "shots", where={"shots": shots}) for shots in (4, 16)),
    Variation("five orders of the same demonstrations", "orders"),
    Variation("demonstrations and queries as a conversation (`--chat`)", "chat"),
)


def variations(evidence: Evidence) -> Iterator[Compared]:
    """Thinking at a fixed T in every variation that was run."""
    for each in VARIATIONS:
        if pairs := pairs_at(each.rows(evidence), each.eta, each.t):
            yield Compared(each.name, False, pairs, thinks=True)


@dataclass(frozen=True)
class Shots:
    """A number of demonstrations: what T = 5 changes, and how accuracy varies over seeds at T = 1 and then."""

    shots: str
    change: Difference
    spread: Spreads


def by_shots(evidence: Evidence) -> Iterator[Shots]:
    """The paper's setting after each number of demonstrations, and after the tasks' own, on the same rows."""
    own, varied = evidence.folder("own"), evidence.folder("shots")
    numbers = sorted(set(own["shots"]))
    groups = [(str(shots), rows) for shots, rows in varied.groupby("shots")]
    groups += [(f"{numbers[0]} to {numbers[-1]}, the tasks' own", own)] if numbers and groups else []
    for shots, rows in groups:
        table = _both(rows)
        if len(table) and _groups(table):
            yield Shots(shots, compare(pairs_at(rows, ETA, T), "accuracy"), spreads(*_sides(table)))


def over_orders(evidence: Evidence) -> Spreads | None:
    """How accuracy varies over orders of the same demonstrations, at T = 1 and at T = 5; None if nothing was run."""
    rows = evidence.folder("orders")
    table = _both(rows.assign(seed=rows["order"]))
    return spreads(*_sides(table)) if len(table) and _groups(table) else None


@dataclass(frozen=True)
class Subjects:
    """A group of MMLU or BBH: the most rows of a task, means over tasks at T = 1 and by chance, and each task's change.

    `steps` is what T = 5 changes, by task; `change` its mean, with Student's interval over tasks. Of the `answers` to
    all rows, `more` is how many more are right at T = 5.
    """

    rows: int
    answers: int
    more: int
    before: float
    chance: float
    steps: dict[str, float]

    @property
    def change(self) -> Estimate:
        """The mean over tasks."""
        steps = list(self.steps.values())
        return Estimate(float(np.mean(steps)), t_interval(steps))

    def beyond(self, others: Subjects) -> Estimate:
        """How much more it gains than another group; Welch's interval over tasks."""
        ends = ttest_ind(list(self.steps.values()), list(others.steps.values()), equal_var=False).confidence_interval()
        return Estimate(self.change.mean - others.change.mean, (float(ends.low), float(ends.high)))


def by_group(evidence: Evidence) -> dict[str, Subjects]:
    """MMLU, its categories, and BBH, by name."""
    by_task: dict[str, dict[int, Result]] = {}
    for result in evidence.subjects:
        by_task.setdefault(result.setting.task, {})[result.setting.iteration] = result
    groups: dict[str, list[dict[int, Result]]] = {}
    for at in by_task.values():
        for group in at[1].groups if {1, T} <= set(at) else ():
            groups.setdefault(group, []).append(at)
    return {
        group: Subjects(
            max(at[1].n for at in tasks),
            sum(at[1].n for at in tasks),
            sum(at[T].right - at[1].right for at in tasks),
            float(np.mean([at[1].accuracy for at in tasks])),
            float(np.mean([at[1].chance for at in tasks])),
            {at[1].setting.task: at[T].accuracy - at[1].accuracy for at in tasks},
        )
        for group, tasks in groups.items()
    }


def _both(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracies at T = 1 and T = 5 by task and seed, where both are known."""
    table = rows.pivot_table(index=["task", "seed"], columns="t", values="accuracy", observed=True)
    return table[[1, T]].dropna() if {1, T} <= set(table) else table.iloc[:0]


def _groups(table: pd.DataFrame) -> bool:
    """Whether every task has at least two values, so that they have a standard deviation."""
    return bool(table.groupby("task", observed=True).size().min() > 1)


def _sides(table: pd.DataFrame) -> tuple[Sequence[Floats], Sequence[Floats]]:
    before, after = ([of_task[t].to_numpy() for _, of_task in table.groupby("task", observed=True)] for t in (1, T))
    return before, after
