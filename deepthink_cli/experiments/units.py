"""Units of a run: jobs of one task whose readings share a pass, and of which of them the rows are written.

A worker does one unit at a time. Where there are fewer groups of jobs that are read together than workers, several
units read the same jobs, and each writes the rows of some. A worker prepares the jobs again from the options of the
run; a digest of their data shows whether they are the same.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.base import JobEvent, Unit
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job, Prepared, Run, known, pending, planned
from deepthink_cli.experiments.prepare import prepare_jobs
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.scorer import max_tokens_together, together, work
from deepthink_cli.io.text import json_sha256
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.selection.store import Store

Wanted = dict[Job, list[Setting]]  # jobs that are read together, with the rows that are to be made of each


@dataclass(frozen=True)
class RunUnit(Unit):
    """Some jobs of one task of a run, or all of them if a method chooses their demonstrations with the model.

    `jobs` are numbers in the order of `prepare_jobs`, empty for all; they are read together, and the rows of those that
    are `written` are made, except the rows with the keys `done`. `digest` is that of the data of the jobs. With
    `samples`, rows come with the predictions of their inputs.
    """

    run: Experiment
    task: str
    jobs: tuple[int, ...]
    written: tuple[int, ...]
    digest: str
    done: frozenset[str]
    samples: bool


def data_digest(jobs: Iterable[Prepared]) -> str:
    """The digest of the tasks, the evaluated rows and the demonstrations of jobs, or the pools that they come from."""
    return json_sha256([job.data for job in jobs])[:16]


def missing_rows(
    group: Iterable[Job], written: Collection[Prepared], identity: ModelIdentity, done: Collection[str]
) -> Wanted:
    """Jobs that are read together, with the rows that are not `done` of those that are to be `written`."""
    return {
        job: [each for each in job.settings(identity) if each.key not in done] if job in written else []
        for job in group
    }


class RunWorker:
    """A model and the jobs of the tasks of one run, which are kept for the units that follow."""

    def __init__(self, spec: ModelSpec, engine: Engine, store: Store | None) -> None:
        self.spec, self.engine, self.store = spec, engine, store
        self.run: Run | None = None
        self.prepared: dict[str, list[Prepared]] = {}  # by task

    def do(self, unit: Unit) -> Iterator[JobEvent]:
        """Make the missing rows of a unit; raises InputError if its jobs are others on this machine."""
        assert isinstance(unit, RunUnit)
        of_task = self._prepared(unit)
        read = [of_task[number] for number in unit.jobs] or of_task
        if data_digest(read) != unit.digest:
            raise InputError(
                f"{unit.label}: its rows, demonstrations or model on {socket.gethostname()} are others than those of "
                "this run (their digests differ); give every machine the same data, model and versions"
            )
        groups, written = [known(read)], known(of_task[number] for number in unit.written)
        if not unit.jobs:
            written = [job for each in pending(read) for job in each.jobs(self.engine, self.store)]
            groups = list(together(written, max_tokens_together(self.engine)))
        for group in groups:
            yield from work(self.engine, missing_rows(group, written, self.engine.identity, unit.done), unit.samples)

    def _prepared(self, unit: RunUnit) -> list[Prepared]:
        """The jobs of the unit's task."""
        if self.run is None or self.run.options != unit.run:
            self.run = planned(unit.run, self.spec)
            self.prepared.clear()
        if unit.task not in self.prepared:
            task = next(task for task in self.run.tasks if task.name == unit.task)
            self.prepared[unit.task] = list(prepare_jobs(self.run, task))
        return self.prepared[unit.task]
