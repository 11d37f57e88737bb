"""The rows of runs grouped by job: all iterations of one model, task, seed and update rule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import total_ordering
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problems
from deepthink_cli.report.arms import SPLITTING, Arm
from deepthink_cli.report.row_limits import RowLimits
from deepthink_cli.report.where import conditions, select
from deepthink_cli.runs.results import FILE, Result, Setting, read_results
from deepthink_cli.runs.same_data import check_agree
from deepthink_cli.runs.shards import with_shards

if TYPE_CHECKING:
    from pandas import DataFrame

CONSTANT = ("model_sha256", "task_sha256", "split", "limit")


@total_ordering
@dataclass(frozen=True)
class Seed:
    """The seed of the demonstrations, and the seed of their order if there is one."""

    number: int
    order: int | None = None

    def __str__(self) -> str:
        return f"seed {self.number}" if self.order is None else f"seed {self.number} in order {self.order}"

    def __lt__(self, other: Seed) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, int]:
        return self.number, -1 if self.order is None else self.order


@dataclass
class JobResults:
    """The rows of one job by iteration; `dev` is empty if the run has no dev rows."""

    arm: Arm
    task: str
    groups: list[str]
    seed: Seed
    test: dict[int, Result] = field(default_factory=dict)
    dev: dict[int, Result] = field(default_factory=dict)

    @property
    def widest_group(self) -> str:
        """The widest group of the task, or the task itself if it has none."""
        return self.groups[0] if self.groups else self.task


def read_jobs(runs: Sequence[Path], where: Sequence[str] = ()) -> list[JobResults]:
    """The jobs of all runs; only rows that fulfil the conditions of `where` (see `report/where.py`).

    Raises InputError with a line for each folder that is not a run or has no rows, and as `conditions`, `select` and
    `jobs_of` do.
    """
    problems = Problems()
    chosen = problems.result(lambda: conditions(where))
    results: list[Result] = []
    for run in runs:
        with problems.collected():
            if not run.is_dir():
                raise InputError(f"RUN {run}: no such folder; give the folder of a deepthink run")
            rows = _rows(run)
            if not rows:
                raise InputError(f"RUN {run}: {FILE} has no rows yet; let the run finish a job first")
            results += rows
    problems.raise_any()
    return jobs_of(select(results, chosen))


def _rows(run: Path) -> list[Result]:
    """The rows of a run; those of its shards by task and seed, since shards have no common order."""
    folders = with_shards([run])
    rows = [row for folder in folders for row in read_results(folder)]
    return rows if folders == [run] else sorted(rows, key=lambda row: (row.setting.task, row.setting.seed))


def jobs_of(results: Iterable[Result]) -> list[JobResults]:
    """Jobs in the order of their first rows; test rows of different limits belong to different jobs.

    Raises InputError if results of the same name come from different data, if a setting has two
    different results, or if one arm's rows for a task differ in a value that must not be averaged over.
    """
    every = list(results)
    check_agree(every)
    rows = _unique(every)
    limits = RowLimits(rows)
    splitting = _splitting(rows, limits)
    jobs: dict[tuple[Arm, str, Seed], JobResults] = {}
    for row in rows:
        setting, seed = row.setting, Seed(row.setting.seed, row.setting.order_seed)
        for limit in limits.of(row) if "limit" in splitting else (setting.limit,):
            arm = Arm.of(replace(setting, limit=limit), splitting)
            job = jobs.setdefault((arm, setting.task, seed), JobResults(arm, setting.task, row.groups, seed))
            rows_of_part = job.dev if setting.part == "dev" else job.test
            if setting.iteration in rows_of_part:
                _refuse_to_average(rows_of_part[setting.iteration], row)
            rows_of_part[setting.iteration] = row
    _check_constant(jobs.values())
    return list(jobs.values())


def job_table(jobs: Iterable[JobResults]) -> DataFrame:
    """A row for each job: `arm`, `family`, `group` (the widest), `task`, `seed`, and the `job` itself."""
    import pandas as pd

    rows = [(job.arm, job.arm.family, job.widest_group, job.task, job.seed, job) for job in jobs]
    return pd.DataFrame(rows, columns=["arm", "family", "group", "task", "seed", "job"], dtype=object)


def result_table(jobs: Iterable[JobResults]) -> DataFrame:
    """A row for each result of each job: the columns of `job_table`, `part`, `iteration` and `result`."""
    import pandas as pd

    table = job_table(jobs)
    rows = [
        (index, part, iteration, result)
        for index, job in enumerate(table["job"])
        for part, results in (("test", job.test), ("dev", job.dev))
        for iteration, result in results.items()
    ]
    results = pd.DataFrame(rows, columns=["index", "part", "iteration", "result"])
    return results.join(table, on="index").drop(columns="index")


def _unique(results: Iterable[Result]) -> list[Result]:
    """The results without duplicates; an older row without digests duplicates the same row with digests."""
    by_setting: dict[Setting, Result] = {}
    for row in results:
        setting = row.setting.without_digests
        first = by_setting.setdefault(setting, row)
        if replace(first, key="", setting=setting) != replace(row, key="", setting=setting):
            where = f"{setting.model}, {setting.task}, seed {setting.seed}, T = {setting.iteration}"
            raise InputError(f"{where}: two different results for one setting; give one run that has it, not both")
        if first.setting.rows_sha256 is None:
            by_setting[setting] = row
    return list(by_setting.values())


def _splitting(rows: Sequence[Result], limits: RowLimits) -> list[str]:
    """Which of `SPLITTING` take several values for one arm and task."""
    import pandas as pd

    settings = [row.setting for row in rows]
    keys: list[Any] = [(Arm.of(setting), setting.task, setting.part) for setting in settings]
    names = [name for name in SPLITTING if name != "limit"]  # that of dev rows is another number
    values = {name: [getattr(setting, name) for setting in settings] for name in names}
    several = pd.DataFrame(values).groupby(pd.Series(keys), sort=False).nunique().gt(1).any()
    return [*several.index[several], *(["limit"] if limits.are_several else [])]


def _refuse_to_average(first: Result, second: Result) -> None:
    names = [name for name in CONSTANT if getattr(first.setting, name) != getattr(second.setting, name)]
    values = "; ".join(f"{name} {getattr(first.setting, name)} and {getattr(second.setting, name)}" for name in names)
    part = "dev" if first.setting.part == "dev" else "test"
    raise InputError(
        f"{first.setting.task}: its {part} rows differ ({values}) and cannot be averaged; choose some of them with "
        "--where, or run them into folders of their own"
    )


def _check_constant(jobs: Collection[JobResults]) -> None:
    first: dict[tuple[Arm, str, str, str], object] = {}
    for job in jobs:
        for row in (*job.test.values(), *job.dev.values()):
            for name in CONSTANT:
                value = getattr(row.setting, name)
                expected = first.setdefault((job.arm, job.task, row.setting.part, name), value)
                if expected != value:
                    raise InputError(
                        f"{job.task}: rows of {job.arm.model} differ in {name} ({expected}, {value}) and cannot be "
                        "averaged; choose some of them with --where, or report their runs one at a time"
                    )
