"""What a worker holds of a run: a model, and the jobs of its tasks, which are prepared again from its options."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.messages import JobEvent, Unit
from deepthink_cli.experiments.jobs import Prepared, known, pending
from deepthink_cli.experiments.plan import Run, planned
from deepthink_cli.experiments.prepare import prepare_jobs
from deepthink_cli.experiments.runner import check_ids, max_tokens_together, together, work
from deepthink_cli.experiments.units import RunUnit, jobs_digest, pending_digest
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.selection.store import Store


class UnitRunner:
    """A model and the jobs of the tasks of one run, which are kept for the units that follow."""

    def __init__(self, spec: ModelSpec, engine: Engine, store: Store | None) -> None:
        self.spec, self.engine, self.store = spec, engine, store
        self.run: Run | None = None
        self.prepared: dict[str, list[Prepared]] = {}  # by task

    def do(self, unit: Unit, samples: bool) -> Iterator[JobEvent]:
        """Make the missing rows of a unit; raises InputError if its jobs are others on this machine."""
        assert isinstance(unit, RunUnit)
        jobs, identity = self._jobs(unit), self.engine.identity
        if unit.jobs:
            groups = [known(jobs[number] for number in unit.jobs)]
            _check(unit, jobs_digest(job.settings(identity) for job in groups[0]))
        else:
            _check(unit, pending_digest(pending(jobs), identity))
            chosen = [job for each in pending(jobs) for job in each.jobs(self.engine, self.store)]
            groups = list(together(chosen, max_tokens_together(self.engine)))
        check_ids(self.engine, (job for group in groups for job in group))
        for group in groups:
            wanted = {job: [each for each in job.settings(identity) if each.key not in unit.done] for job in group}
            yield from work(self.engine, wanted, samples)

    def _jobs(self, unit: RunUnit) -> list[Prepared]:
        """The jobs of the unit's task."""
        if self.run is None or self.run.options != unit.run:
            self.run = planned(unit.run, self.spec)
            self.prepared.clear()
        if unit.task not in self.prepared:
            task = next(task for task in self.run.tasks if task.name == unit.task)
            self.prepared[unit.task] = list(prepare_jobs(self.run, task))
        return self.prepared[unit.task]


def _check(unit: RunUnit, digest: str) -> None:
    """Raise InputError unless this worker's jobs are those that were asked for."""
    if digest != unit.group:
        raise InputError(
            f"{unit.label}: its rows, demonstrations or model on {socket.gethostname()} are others than those of this "
            "run (their digests differ); give every machine the same data, model and versions"
        )
