"""What a worker does with messages: it holds one model and the jobs of one task, and makes the rows of units."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from importlib.metadata import version
from warnings import catch_warnings, simplefilter

import torch

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.choice import load_model
from deepthink_cli.errors import (
    DeepThinkError,
    InputError,
    Naming,
    Problem,
    naming_options_everywhere,
    out_of_memory,
    parameter,
    ran_out_of_memory,
)
from deepthink_cli.experiments.executors.base import package_sha256
from deepthink_cli.experiments.executors.messages import (
    Began,
    Do,
    Ended,
    Event,
    Failed,
    Finished,
    JobEvent,
    JobInfo,
    Made,
    Message,
    Open,
    Opened,
    Scored,
)
from deepthink_cli.experiments.jobs import PendingJobs, RunJob, prepare_jobs
from deepthink_cli.experiments.plan import RunPlan, planned, settings
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.runner import Work, max_tokens_together, run_jobs, together
from deepthink_cli.experiments.units import Unit, jobs_digest, pending_digest
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.selection.store import Store


class MessageHandler:
    """A model and the jobs of the tasks of one run, which are kept for the units that follow.

    What methods read of pools is cached in `store`.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.naming: Naming = parameter
        self.engine: Engine | None = None
        self.spec: ModelSpec | None = None
        self.plan: RunPlan | None = None
        self.prepared: dict[str, list[RunJob | PendingJobs]] = {}  # by task

    def handle(self, message: Message) -> Iterator[Event]:
        """Do what a message asks; every error becomes the event `Failed`."""
        if isinstance(message, Open):
            self.naming = message.naming
        try:
            with naming_options_everywhere(self.naming):
                if isinstance(message, Open):
                    yield self._opened(message.model)
                else:
                    yield from self._done(message)
                    yield Finished()
        except DeepThinkError as error:
            yield Failed(error.problems, isinstance(error, InputError))
        except Exception as error:
            text = out_of_memory(error) if ran_out_of_memory(error) else f"{type(error).__name__}: {error}"
            yield Failed((Problem(text),), False)

    def _opened(self, model: ModelOptions) -> Opened:
        if self.engine is not None:
            self._close()
        self.spec = open_model(model)
        with catch_warnings():
            simplefilter("ignore", RuntimeWarning)  # the warning is part of the answer
            engine = self.engine = load_model(self.spec)
        return Opened(
            identity=engine.identity,
            most=max_tokens_together(engine),
            device=engine.device,
            description=engine.notice or engine.description,
            warning=engine.warning,
            package=f"{version('deepthink-cli')} ({package_sha256()[:12]})",
            host=socket.gethostname(),
        )

    def _close(self) -> None:
        """Free the memory of the model before the next one is loaded."""
        self.engine, self.spec, self.plan = None, None, None
        self.prepared.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _done(self, message: Do) -> Iterator[JobEvent]:
        unit, engine, spec = message.unit, self.engine, self.spec
        assert engine is not None
        assert spec is not None
        plan, jobs = self._jobs(unit, spec)
        if unit.jobs:
            group = [each for number in unit.jobs if isinstance(each := jobs[number], RunJob)]
            asked: Work = [(job, settings(plan, job, engine.identity)) for job in group]
            _check(unit, jobs_digest([wanted for _, wanted in asked]))
            groups = [asked]
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
                (job, [setting for setting in wanted if not _exists(setting, unit.done)])
                for job, wanted in together_read
            ]
            yield from job_events(plan, engine, work, message.samples)

    def _jobs(self, unit: Unit, spec: ModelSpec) -> tuple[RunPlan, list[RunJob | PendingJobs]]:
        """The plan of the unit's run and the jobs of its task."""
        if self.plan is None or self.plan.options != unit.run:
            self.plan = planned(unit.run)
            self.prepared.clear()
        if unit.task not in self.prepared:
            task = next(task for task in self.plan.tasks if task.name == unit.task)
            self.prepared[unit.task] = list(prepare_jobs(self.plan, spec, task))
        return self.plan, self.prepared[unit.task]


def job_events(plan: RunPlan, engine: Engine, work: Work, samples: bool) -> Iterator[JobEvent]:
    """Run jobs that are read together, and yield what happens; nothing if no row is missing."""
    numbers = {job: number for number, job in enumerate(job for job, wanted in work if wanted)}
    if not numbers:
        return
    yield Began([job_info(plan, job, engine.identity.id) for job in numbers])
    for step in run_jobs(plan, engine, work):
        if step.scored or step.row is None:
            yield Scored(numbers[step.job], step.scored)
        if step.row is not None:
            yield Made(numbers[step.job], step.row, tuple(step.predictions) if samples else ())
    yield Ended()


def job_info(plan: RunPlan, job: RunJob, model: str) -> JobInfo:
    """What is shown of a job."""
    gates, calibration = len(plan.options.rules), plan.options.calibrations[0]
    fewer = job.fewer(model) if job.from_pool else None
    return JobInfo(job.label, job.task.name, job.seed, model, gates, calibration, fewer)


def _exists(setting: Setting, done: frozenset[str]) -> bool:
    return setting.key in done or setting.without_digests.key in done


def _check(unit: Unit, digest: str) -> None:
    """Raise InputError unless this worker's jobs are those that were asked for."""
    if digest != unit.digest:
        raise InputError(
            f"{unit.label}: its rows, demonstrations or model on {socket.gethostname()} are others than those of this "
            "run (their digests differ); give every machine the same data, model and versions"
        )
