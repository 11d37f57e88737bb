"""Units of a run: jobs of one task whose readings share a pass.

A worker does one unit at a time, and a shard is a set of units. A unit names its jobs by their numbers. Where there are
fewer such groups of jobs than workers or shards, several units read the same jobs, and each writes the rows of some.
A worker prepares them again from the options of the run; the unit's digest, over the keys of all their rows, shows
whether they are the same.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Collection, Iterator, Sequence, Sized
from dataclasses import dataclass

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.messages import JobEvent, Unit
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import PendingJobs, RunJob, prepare_jobs
from deepthink_cli.experiments.plan import RunPlan, cells, planned, settings
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.runner import Work, groups_of, job_events, together
from deepthink_cli.io.text import canonical_json
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.selection.store import Store

Group = Sequence[tuple[int, RunJob, Sequence[Setting]]]  # jobs by their number within their task, with all settings


@dataclass(frozen=True)
class RunUnit:
    """Some jobs of one task of a run, or all of them if a method chooses their demonstrations with the model.

    `jobs` are numbers in the order of `prepare_jobs`, empty for all; `group` is the digest of what they are. All of
    them are read together; rows are written for those in `part` alone, which are numbers, too. `done` are the keys of
    rows that exist already.
    """

    run: Experiment
    task: str
    jobs: tuple[int, ...]
    part: tuple[int, ...]
    group: str
    done: frozenset[str]
    label: str

    @property
    def subject(self) -> ModelOptions:
        """The model of the run."""
        return self.run.models[0]

    @property
    def digest(self) -> str:
        """The digest of the jobs that are read, and the numbers of those whose rows are written."""
        return part_digest(self.group, self.part)


def unit_of_jobs(run: Experiment, group: Group, part: Sequence[int], done: Collection[str]) -> RunUnit:
    """The unit that reads jobs whose demonstrations are known, and writes the rows of those at some places."""
    keys = [setting.key for _, _, wanted in group for setting in wanted]
    numbers = tuple(number for number, _, _ in group)
    job, more = group[part[0]][1], len(part) - 1
    return RunUnit(
        run=run,
        task=job.task.name,
        jobs=numbers,
        part=tuple(numbers[place] for place in part),
        group=jobs_digest([wanted for _, _, wanted in group]),
        done=frozenset(keys) & frozenset(done),
        label=f"{job.label} and {more} more" if more else job.label,
    )


def unit_of_pending(
    plan: RunPlan, pending: Sequence[PendingJobs], identity: ModelIdentity, done: Collection[str]
) -> RunUnit:
    """The unit of a task whose demonstrations methods choose: its jobs can be grouped only when they are chosen."""
    task = pending[0].task.name
    return RunUnit(plan.options, task, (), (), pending_digest(plan, pending, identity), frozenset(done), task)


def part_digest(group: str, part: Sequence[int]) -> str:
    """The digest of a unit: of a group of jobs, and of those among them whose rows it writes."""
    return _digest([group, *part]) if part else group


def parts_of(groups: Sequence[Sized], least: int) -> Iterator[tuple[int, list[int]]]:
    """Divide groups of jobs into units, `least` of them if there are so many jobs: a group's number and some places.

    Only where there are fewer groups than that is one divided. Its jobs are still read together in each of its parts:
    rows do not depend on how a run is divided.
    """
    parts = -(-least // max(1, len(groups)))
    for number, group in enumerate(groups):
        for first in range(min(parts, len(group))):
            yield number, list(range(first, len(group), parts))


def jobs_digest(wanted: Sequence[Sequence[Setting]]) -> str:
    """The digest of a group, given all settings of each of its jobs."""
    return _digest([setting.key for of_job in wanted for setting in of_job])


def pending_digest(plan: RunPlan, pending: Sequence[PendingJobs], identity: ModelIdentity) -> str:
    """The digest of a task whose demonstrations are chosen: its model, its data and all that is crossed."""
    data = [[each.task_sha256, each.evaluated.rows_sha256, each.pool.sha256] for each in pending]
    methods = [[each.request.method, each.request.shots, each.seed, each.request.balanced] for each in pending]
    crossed = [[each.name, *map(str, cells(plan, each))] for each in plan.options.chosen_techniques]
    return _digest(
        [
            identity.contents_sha256,
            identity.dtype,
            data,
            methods,
            crossed,
            plan.positions,
            plan.options.scoring,
        ]
    )


def grouped_jobs(plan: RunPlan, jobs: Sequence[RunJob], identity: ModelIdentity, most: int) -> list[Group]:
    """Jobs of known demonstrations in the groups of `together`, for an engine that reads `most` tokens in one pass."""
    numbers = _numbers(jobs)
    work: Work = [(job, settings(plan, job, identity)) for job in jobs]
    return [[(numbers[job], job, wanted) for job, wanted in group] for group in groups_of(plan, most, work)]


def _numbers(jobs: Sequence[RunJob]) -> dict[RunJob, int]:
    """The number of every job within its task."""
    seen: dict[str, int] = {}
    numbers: dict[RunJob, int] = {}
    for job in jobs:
        numbers[job] = seen[job.task.name] = seen.get(job.task.name, -1) + 1
    return numbers


def _digest(values: object) -> str:
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()[:16]


class UnitRunner:
    """A model and the jobs of the tasks of one run, which are kept for the units that follow."""

    def __init__(self, spec: ModelSpec, engine: Engine, store: Store | None) -> None:
        self.spec, self.engine, self.store = spec, engine, store
        self.plan: RunPlan | None = None
        self.prepared: dict[str, list[RunJob | PendingJobs]] = {}  # by task

    def do(self, unit: Unit, samples: bool) -> Iterator[JobEvent]:
        """Make the missing rows of a unit; raises InputError if its jobs are others on this machine."""
        assert isinstance(unit, RunUnit)
        engine, spec = self.engine, self.spec
        plan, jobs = self._jobs(unit)
        if unit.jobs:
            group = [each for number in unit.jobs if isinstance(each := jobs[number], RunJob)]
            asked: Work = [(job, settings(plan, job, engine.identity)) for job in group]
            _check(unit, jobs_digest([wanted for _, wanted in asked]))
            others = frozenset(unit.jobs) - frozenset(unit.part)
            groups: list[Work] = [
                [
                    (job, [] if number in others else wanted)
                    for number, (job, wanted) in zip(unit.jobs, asked, strict=True)
                ]
            ]
        else:
            pending = [each for each in jobs if isinstance(each, PendingJobs)]
            _check(unit, pending_digest(plan, pending, engine.identity))
            chosen = [job for each in pending for job in each.jobs(plan, spec, engine, self.store)]
            asked = [(job, settings(plan, job, engine.identity)) for job in chosen]
            groups = list(together(plan, engine, asked))
        for job, _ in asked:
            for member in job.members:
                engine.check_ids(member.token_ids, f"task {job.label}: demonstrations")
        for together_read in groups:
            work = [
                (job, [setting for setting in wanted if setting.key not in unit.done]) for job, wanted in together_read
            ]
            yield from job_events(plan, engine, work, samples)

    def _jobs(self, unit: RunUnit) -> tuple[RunPlan, list[RunJob | PendingJobs]]:
        """The plan of the unit's run and the jobs of its task."""
        if self.plan is None or self.plan.options != unit.run:
            self.plan = planned(unit.run)
            self.prepared.clear()
        if unit.task not in self.prepared:
            task = next(task for task in self.plan.tasks if task.name == unit.task)
            self.prepared[unit.task] = list(prepare_jobs(self.plan, self.spec, task))
        return self.plan, self.prepared[unit.task]


def _check(unit: RunUnit, digest: str) -> None:
    """Raise InputError unless this worker's jobs are those that were asked for."""
    if digest != unit.group:
        raise InputError(
            f"{unit.label}: its rows, demonstrations or model on {socket.gethostname()} are others than those of this "
            "run (their digests differ); give every machine the same data, model and versions"
        )
