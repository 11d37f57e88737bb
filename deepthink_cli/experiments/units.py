"""Units of a run: jobs of one task whose readings share a pass, and of which of them the rows are written.

A worker does one unit at a time, and a shard is a set of units. A unit names its jobs by their numbers. Where there are
fewer groups of jobs that are read together than workers or shards, several units read the same jobs, and each writes
the rows of some. A worker prepares them again from the options of the run; the unit's digest, over the keys of all
their rows, shows whether they are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from deepthink_cli.events import Note, Tell
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.folder import RunFolder
from deepthink_cli.experiments.jobs import Job, PendingJobs
from deepthink_cli.experiments.plan import points
from deepthink_cli.experiments.progress import JobsPlanned
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.same_data import check_continues
from deepthink_cli.experiments.scorer import together
from deepthink_cli.experiments.shards import Share
from deepthink_cli.io.text import json_sha256
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.tasks.catalogue import digest as digest_of_task

Wanted = dict[Job, list[Setting]]  # jobs that are read together, with the rows that are missing of each


@dataclass(frozen=True)
class RunUnit:
    """Some jobs of one task of a run, or all of them if a method chooses their demonstrations with the model.

    `jobs` are numbers in the order of `prepare_jobs`, empty for all; they are read together. `done` are the keys of
    their rows that are not made, because they exist or another unit makes them. `group` is the digest of the jobs that
    are read, `digest` also of those whose rows are made.
    """

    run: Experiment
    task: str
    jobs: tuple[int, ...]
    group: str
    digest: str
    done: frozenset[str]
    label: str

    @property
    def subject(self) -> ModelOptions:
        """The model of the run."""
        return self.run.models[0]


def jobs_digest(of_jobs: Iterable[Sequence[Setting]]) -> str:
    """The digest of jobs that are read together, given all settings of each."""
    return _digest([setting.key for settings in of_jobs for setting in settings])


def _keys(of_jobs: Iterable[Sequence[Setting]]) -> frozenset[str]:
    return frozenset(setting.key for settings in of_jobs for setting in settings)


def pending_digest(pending: Sequence[PendingJobs], identity: ModelIdentity) -> str:
    """The digest of a task whose demonstrations are chosen: its model, its data and all that is crossed."""
    run, options = pending[0].run, pending[0].run.options
    data = [[digest_of_task(each.task), each.evaluated.rows_sha256, each.pool.sha256] for each in pending]
    methods = [[each.request.method, each.request.shots, each.seed, each.request.balanced] for each in pending]
    scored = [[each.name, *map(str, points(options, each))] for each in options.chosen_techniques]
    crossed = [scored, options.calibrations, run.options.positions[0], options.scoring.recorded]
    return _digest([identity.contents_sha256, identity.dtype, data, methods, crossed])


def _digest(values: object) -> str:
    return json_sha256(values)[:16]


class Planner:
    """Plans the units of runs: those of this process's `share`; `rows` counts their rows.

    Where a run has fewer groups of jobs than `parts`, several units read the same group.
    """

    def __init__(self, folder: RunFolder, share: Share, parts: int, tell: Tell) -> None:
        self.folder, self.share, self.parts, self.tell = folder, share, parts, tell
        self.rows = 0

    def pending(self, jobs: Sequence[PendingJobs], identity: ModelIdentity) -> Iterator[RunUnit]:
        """The units of tasks whose demonstrations are chosen: their jobs can be grouped only when they are chosen."""
        for of_task in tasks_of(jobs):
            run, task, rows = of_task[0].run, of_task[0].task.name, sum(each.rows for each in of_task)
            all_jobs = pending_digest(of_task, identity)
            if self.share.takes(all_jobs, rows):
                yield RunUnit(run.options, task, (), all_jobs, all_jobs, frozenset(self.folder.done), task)

    def known(
        self, jobs: Sequence[Job], identity: ModelIdentity, most: int, is_mine: bool = False
    ) -> list[tuple[RunUnit, Wanted]]:
        """The units of the jobs of one run, for an engine that reads `most` tokens in one pass.

        If it `is_mine`, the share has been asked for the run already. Raises InputError if rows of the folder come from
        other data.
        """
        settings = {job: job.settings(identity) for job in jobs}
        numbers = {job: number for of_task in tasks_of(jobs) for number, job in enumerate(of_task)}
        groups, units, asked = list(together(jobs, most)), list[tuple[RunUnit, Wanted]](), list[Setting]()
        parts = 1 if is_mine else -(-self.parts // max(1, len(groups)))
        for group in groups:
            all_jobs = jobs_digest(settings[job] for job in group)
            for part in (group[first::parts] for first in range(min(parts, len(group)))):
                written = [setting for job in part for setting in settings[job]]
                digest = _digest([all_jobs, *(numbers[job] for job in part)])
                if not is_mine and not self.share.takes(digest, len(written)):
                    continue
                asked += written
                missing = {job: [each for each in settings[job] if each.key not in self.folder.done] for job in part}
                wanted = {job: missing.get(job, []) for job in group}
                unit = RunUnit(
                    run=group[0].run.options,
                    task=group[0].task.name,
                    jobs=tuple(numbers[job] for job in group),
                    group=all_jobs,
                    digest=digest,
                    done=_keys(settings[job] for job in group) - _keys(wanted.values()),
                    label=f"{part[0].label} and {len(part) - 1} more" if len(part) > 1 else part[0].label,
                )
                units.append((unit, wanted))
        check_continues(self.folder.found, asked)
        self._tell(len(asked), [wanted for _, wanted in units])
        return units

    def _tell(self, rows: int, units: Sequence[Wanted]) -> None:
        """Count rows, and tell of those that are there and of those that are missing."""
        self.rows += rows
        unfinished = [(job, settings) for wanted in units for job, settings in wanted.items() if settings]
        there = rows - sum(len(settings) for _, settings in unfinished)
        if there:
            self.tell(Note(f"{self.folder.folder}: {there} of {rows} rows are there already"))
        self.tell(JobsPlanned(len(unfinished), sum(job.scorings(settings) for job, settings in unfinished)))


T = TypeVar("T", Job, PendingJobs)


def tasks_of(jobs: Sequence[T]) -> list[list[T]]:
    """Jobs by their tasks, which are neighbours."""
    return [list(of_task) for _, of_task in groupby(jobs, key=lambda job: job.task.name)]
