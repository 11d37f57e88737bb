"""What a figure shows: for every task or mean, accuracy by T with its spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepthink_cli.report.groups import groups_of, in_order, is_detail, names_of, widest
from deepthink_cli.report.jobs import Arm, JobResults, Seed
from deepthink_cli.report.significance import Spread
from deepthink_cli.runs.results import Part, Result


@dataclass(frozen=True)
class Curve:
    """Accuracy of one arm by T, the mean over `tasks` tasks, over the seeds that have every T on all of them."""

    arm: Arm
    part: Part
    tasks: int
    points: Mapping[int, Spread]


@dataclass(frozen=True)
class Panel:
    """The curves of one task, or of the mean over a group; `majority` is None where it is not known."""

    name: str
    is_mean: bool
    curves: tuple[Curve, ...]
    majority: float | None


def panels(jobs: Sequence[JobResults], tasks: bool = False) -> list[Panel]:
    """A panel for each task and group, in the order of a table; tasks of large groups only with `tasks`."""
    groups = groups_of(jobs)
    arms = in_order({job.arm for job in jobs}, jobs)
    found = []
    for name in names_of(jobs):
        if is_detail(name, groups) and not tasks:
            continue
        members = groups.get(name, [name])
        own = [job for job in jobs if job.task in members]
        curves = tuple(curve for arm in arms for curve in _curves(arm, [job for job in own if job.arm == arm], jobs))
        if curves:
            found.append(Panel(name, name in groups, curves, _majority(own)))
    return found


def _curves(arm: Arm, own: Sequence[JobResults], jobs: Sequence[JobResults]) -> list[Curve]:
    blocks = {widest(job) for job in own}
    peers = [job for job in jobs if job.arm == arm and widest(job) in blocks]
    made = []
    parts: tuple[Part, ...] = ("test", "dev")
    for part in parts:
        iterations = sorted({t for job in peers for t in _rows(job, part)})
        by_seed: dict[Seed, dict[str, Mapping[int, Result]]] = {}
        for job in own:
            if iterations and _rows(job, part).keys() >= set(iterations):
                by_seed.setdefault(job.seed, {})[job.task] = _rows(job, part)
        tasks = {task for rows in by_seed.values() for task in rows}
        whole = [list(rows.values()) for rows in by_seed.values() if rows.keys() == tasks]
        if whole:
            points = {
                t: Spread.of([statistics.fmean(row[t].accuracy for row in rows) for rows in whole]) for t in iterations
            }
            made.append(Curve(arm, part, len(tasks), points))
    return made


def _rows(job: JobResults, part: Part) -> Mapping[int, Result]:
    return job.dev if part == "dev" else job.test


def _majority(jobs: Sequence[JobResults]) -> float | None:
    """The mean over tasks of the accuracy of always giving the commonest label."""
    by_task: dict[str, list[float | None]] = {}
    for job in jobs:
        by_task.setdefault(job.task, []).extend(row.majority for row in job.test.values())
    known = [[value for value in values if value is not None] for values in by_task.values()]
    return statistics.fmean(map(statistics.fmean, known)) if known and all(known) else None
