"""The data of a figure: for every task or mean, accuracy by T with its spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from deepthink_cli.report.arms import Arm
from deepthink_cli.report.groups import groups_of, in_order, is_detail, names_of
from deepthink_cli.report.job_results import JobResults, result_table
from deepthink_cli.report.significance import Spread
from deepthink_cli.runs.results import Part

if TYPE_CHECKING:
    from pandas import DataFrame

PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Curve:
    """Accuracy of one arm by T, the mean over `tasks` tasks, over the seeds that have every T on all of them."""

    arm: Arm
    part: Part
    tasks: int
    points: Mapping[int, Spread]


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
    shown = []
    for name in names_of(jobs):
        if is_detail(name, groups) and not tasks:
            continue
        members = groups.get(name, [name])
        curves = tuple(curve for arm in arms for curve in _curves(arm, by_arm[arm], members))
        if curves:
            majority = _majority(results[results["task"].isin(members)])
            shown.append(Panel(name, name in groups, curves, majority))
    return shown


def _curves(arm: Arm, results: DataFrame, members: Sequence[str]) -> list[Curve]:
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
            points = {t: Spread.of([statistics.fmean(row) for row in seeds[t].to_numpy().tolist()]) for t in iterations}
            curves.append(Curve(arm, part, jobs.index.get_level_values("task").nunique(), points))
    return curves


def _majority(results: DataFrame) -> float | None:
    """The mean over tasks of the accuracy of always predicting the most frequent label."""
    known = results[results["part"] == "test"].dropna(subset="majority")
    by_task = [statistics.fmean(values) for _, values in known.groupby("task")["majority"]]
    return statistics.fmean(by_task) if len(by_task) == results["task"].nunique() else None
