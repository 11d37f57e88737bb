"""The data of a figure: for every task or mean, accuracy by T, and its difference from T = 1, over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from deepthink_cli.report.arms import Arm
from deepthink_cli.report.groups import LARGE, groups_of, in_order, is_detail, names_of
from deepthink_cli.report.job_results import JobResults, Seed, result_table
from deepthink_cli.report.significance import Paired, Spread
from deepthink_cli.report.tables import plain_rows
from deepthink_cli.runs.results import Part, Result

if TYPE_CHECKING:
    from pandas import DataFrame

PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Curve:
    """Accuracy of one arm by T, the mean over `tasks` tasks, of the seeds that have every T on all of them.

    `accuracies` has a value for each seed at every T, `before` their values at T = 1: of the same arm, or of plain
    in-context learning for a technique that is compared with it; None if there are no such rows.
    """

    arm: Arm
    part: Part
    tasks: int
    accuracies: Mapping[int, Sequence[float]]
    before: Sequence[float] | None

    @cached_property
    def points(self) -> dict[int, Spread]:
        """The spread of the accuracy over seeds, by T."""
        return {t: Spread.of(values) for t, values in self.accuracies.items()}

    @cached_property
    def gains(self) -> dict[int, Paired]:
        """The accuracy less `before`, seed by seed, by T; empty without it."""
        return {} if self.before is None else {t: Paired.of(self.before, v) for t, v in self.accuracies.items()}


@dataclass(frozen=True)
class Panel:
    """The curves of one task, or of the mean over a group; `majority` is None if unknown."""

    name: str
    is_mean: bool
    curves: tuple[Curve, ...]
    majority: float | None


def panels(jobs: Sequence[JobResults], tasks: bool = False) -> list[Panel]:
    """A panel for each task and group, in the order of a table; tasks of large groups only with `tasks`."""
    groups = groups_of(jobs)
    results = result_table(jobs)
    results["accuracy"] = [result.accuracy for result in results["result"]]
    results["majority"] = [result.majority for result in results["result"]]
    by_arm = dict(list(results.groupby("arm", sort=False)))
    arms = in_order(by_arm, jobs)
    plain = plain_rows(jobs)
    shown = []
    for name in names_of(jobs):
        if is_detail(name, groups) and not tasks:
            continue
        members = groups.get(name, [name])
        curves = tuple(curve for arm in arms for curve in _curves(arm, by_arm[arm], members, plain))
        is_task = name in groups and max((curve.tasks for curve in curves), default=1) == 1  # its task has a panel
        if curves and not (is_task and (tasks or len(members) <= LARGE)):
            majority = _majority(results[results["task"].isin(members)])
            shown.append(Panel(name, name in groups, curves, majority))
    return shown


def with_gains(shown: Sequence[Panel]) -> list[Panel]:
    """The panels with the curves whose differences from T = 1 are known, without those that have none."""
    known = [replace(panel, curves=tuple(curve for curve in panel.curves if curve.gains)) for panel in shown]
    return [panel for panel in known if panel.curves]


Plain = Mapping[tuple[Arm, str, Seed], Result]


def _curves(arm: Arm, results: DataFrame, members: Sequence[str], plain: Plain) -> list[Curve]:
    """The curves of an arm on the mean of its member tasks, of test rows and of dev rows.

    A job is complete if it has every T that its arm has in the same widest groups; a seed, if it has a complete
    job on every task that any seed has completed.
    """
    is_member = results["task"].isin(members)
    peers = results[results["group"].isin(results["group"][is_member])]
    curves = []
    for part in PARTS:
        iterations = sorted(set(peers["iteration"][peers["part"] == part].tolist()))
        accuracy = results[is_member & (results["part"] == part)]
        jobs = accuracy.pivot(index=["seed", "task"], columns="iteration", values="accuracy")
        jobs = jobs.reindex(columns=iterations).dropna()
        seeds = jobs.unstack("task").dropna()
        if len(jobs) and len(seeds):
            accuracies = {t: [statistics.fmean(row) for row in seeds[t].to_numpy().tolist()] for t in iterations}
            names = [str(name) for name in seeds[iterations[0]].columns]
            before = accuracies.get(1)
            if arm.is_compared_with_plain:
                before = _plain(arm, list(seeds.index), names, plain) if part == "test" else None
            curves.append(Curve(arm, part, len(names), accuracies, before))
    return curves


def _plain(arm: Arm, seeds: Sequence[Seed], tasks: Sequence[str], plain: Plain) -> list[float] | None:
    """The accuracy of plain in-context learning for each seed, the mean over tasks; None if a row is missing."""
    rows = [[plain.get((arm.untreated, task, seed)) for task in tasks] for seed in seeds]
    known = [[row.accuracy for row in of_seed if row is not None] for of_seed in rows]
    return list(map(statistics.fmean, known)) if all(len(each) == len(tasks) for each in known) else None


def _majority(results: DataFrame) -> float | None:
    """The mean over tasks of the accuracy of always predicting the most frequent label."""
    known = results[results["part"] == "test"].dropna(subset="majority")
    by_task = [statistics.fmean(values) for _, values in known.groupby("task")["majority"]]
    return statistics.fmean(by_task) if len(by_task) == results["task"].nunique() else None
