"""The groups of tasks that are averaged, and the order of names in tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepthink_cli.report.arms import Arm
from deepthink_cli.report.job_results import JobResults

LARGE = 10  # tasks of a group that are shown one by one; larger groups are shown by their means


def groups_of(jobs: Sequence[JobResults]) -> dict[str, list[str]]:
    """The tasks of every group with more than one task."""
    import pandas as pd

    pairs = pd.DataFrame([(group, job.task) for job in jobs for group in job.groups], columns=["group", "task"])
    tasks_by_group = pairs.drop_duplicates().groupby("group", sort=False)["task"]
    return {str(group): list(tasks) for group, tasks in tasks_by_group if len(tasks) > 1}


def names_of(jobs: Sequence[JobResults]) -> list[str]:
    """Tasks and groups in the order of a table: a group's tasks, its subgroups, then the group."""
    import pandas as pd

    groups = groups_of(jobs)
    table = pd.DataFrame(
        [(job.widest_group, job.task, job.groups[1:]) for job in jobs], columns=["widest", "task", "inner"]
    )
    names: list[str] = []
    for widest, rows in table.groupby("widest", sort=False):
        inner = rows["inner"].explode().dropna().unique()
        names += [*rows["task"].unique(), *(group for group in (*inner, widest) if group in groups)]
    return names


def is_detail(name: str, groups: dict[str, list[str]]) -> bool:
    """Whether this is a task of a large group, of which only means are shown by default."""
    return any(name in tasks and len(tasks) > LARGE for tasks in groups.values())


def in_order(arms: Iterable[Arm], jobs: Sequence[JobResults]) -> list[Arm]:
    """Arms by model, in the order of the jobs, then by their values."""
    models = list(dict.fromkeys(job.arm.model for job in jobs))
    return sorted(arms, key=lambda arm: (models.index(arm.model), arm.sort_key))
