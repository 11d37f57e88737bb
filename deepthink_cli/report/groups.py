"""Which tasks are averaged together, and in which order tables and figures name them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from deepthink_cli.report.jobs import Arm, JobResults

LARGE = 10  # tasks of a group; those of a larger one are shown by their means


def groups_of(jobs: Sequence[JobResults]) -> dict[str, list[str]]:
    """The tasks of every group that has more than one."""
    groups: dict[str, dict[str, None]] = {}
    for job in jobs:
        for group in job.groups:
            groups.setdefault(group, {})[job.task] = None
    return {group: list(tasks) for group, tasks in groups.items() if len(tasks) > 1}


def names_of(jobs: Sequence[JobResults]) -> list[str]:
    """Tasks and groups in the order of a table: a group's tasks, the groups within it, then itself."""
    groups = groups_of(jobs)
    tasks: dict[str, dict[str, None]] = {}
    inner: dict[str, dict[str, None]] = {}
    for job in jobs:
        block = widest(job)
        tasks.setdefault(block, {})[job.task] = None
        inner.setdefault(block, {}).update(dict.fromkeys(job.groups[1:]))
    names: list[str] = []
    for block in tasks:
        means = [group for group in (*inner[block], block) if group in groups]
        names += [*tasks[block], *means]
    return names


def widest(job: JobResults) -> str:
    """The widest group of a job's task, or the task itself where it has none."""
    return job.groups[0] if job.groups else job.task


def is_detail(name: str, groups: dict[str, list[str]]) -> bool:
    """Whether this is one of so many tasks that their means are shown instead."""
    return any(name in tasks and len(tasks) > LARGE for tasks in groups.values())


def in_order(arms: Collection[Arm], jobs: Sequence[JobResults]) -> list[Arm]:
    """Arms by model, in the order of the jobs, then by their values."""
    models = {model: place for place, model in enumerate(dict.fromkeys(job.arm.model for job in jobs))}

    def place(arm: Arm) -> tuple[Any, ...]:
        return (
            models[arm.model], arm.dtype, arm.quantize or "", arm.protocol, arm.positions, arm.sampling or "",
            arm.shots or 0, arm.momentum, arm.eta or 0.0,
        )  # fmt: skip

    return sorted(arms, key=place)
