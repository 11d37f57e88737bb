"""Run jobs: read their demonstrations in shared passes, and score every iteration as it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from deepthink_cli.engine.base import Engine
from deepthink_cli.experiments.executors.messages import Began, Ended, JobEvent, JobInfo, Made, Scored
from deepthink_cli.experiments.jobs import RunJob
from deepthink_cli.experiments.plan import RunPlan
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.scorer import JobScorer, Step
from deepthink_cli.method import Method
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.techniques.together import COPIES, think_in_batches

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


Work = Sequence[tuple[RunJob, Sequence[Setting]]]  # jobs with the settings of the rows to write


@dataclass(frozen=True, eq=False)
class _Thinking:
    """One memory to make: a member of a job with one method, and the settings whose rows are missing."""

    scorer: JobScorer
    member: int
    method: Method
    wanted: Sequence[Setting]

    @property
    def demonstrations(self) -> TokenizedDemonstrations:
        """The demonstrations to read."""
        return self.scorer.job.members[self.member]

    def score(self, memory: Memory, finished: set[str]) -> Iterator[Step]:
        """Score one iteration for its settings that are not finished, by their keys; settings of a part together."""
        of_iteration = [
            setting
            for setting in self.wanted
            if setting.iteration == memory.iteration
            and setting.gate == self.method.update
            and setting.key not in finished
        ]
        for _, settings in groupby(of_iteration, key=lambda setting: setting.part):
            for step in self.scorer.score(self.member, memory, list(settings)):
                if step.row is not None:
                    finished.add(step.row.key)
                yield step


def together(plan: RunPlan, engine: Engine, work: Work) -> Iterator[Work]:
    """Yield neighbouring jobs of one task whose readings, with every gate, fit one pass, which is faster."""
    return groups_of(plan, max_tokens_together(engine), work)


def max_tokens_together(engine: Engine) -> int:
    """The most tokens of demonstrations that the engine reads in one pass."""
    return min(engine.tokens_together, engine.tokens_held(COPIES))


def groups_of(plan: RunPlan, most: int, work: Work) -> Iterator[Work]:
    """The groups of `together` for an engine that reads at most `most` tokens in one pass.

    Finished jobs keep their group, so that resumed runs are identical to runs that were never stopped.
    """
    for _, jobs in groupby(work, key=lambda job_and_settings: job_and_settings[0].task.name):
        group, tokens = list[tuple[RunJob, Sequence[Setting]]](), 0
        for job, wanted in jobs:
            length = len(plan.options.rules) * sum(len(member.token_ids) for member in job.members)
            if group and tokens + length > most:
                yield group
                group, tokens = [], 0
            group.append((job, wanted))
            tokens += length
        yield group


def run_jobs(plan: RunPlan, engine: Engine, work: Work) -> Iterator[Step]:
    """Think once for every job and gate, in shared passes, and score the wanted iterations as they are made.

    Yields after every chunk of inputs. T = 1 is the same for every gate and is scored once. As many memories are
    made together as fit the free memory of the device.
    """
    read, tuned = list[_Thinking](), list[_Thinking]()
    last = max((setting.iteration for _, wanted in work for setting in wanted), default=1)
    for job, wanted in work:
        scorer = JobScorer(plan, job, engine)
        if job.tuning is not None:
            if wanted:
                tuned.append(_Thinking(scorer, 0, Method(1, wanted[0].gate, plan.positions), wanted))
            continue
        methods = [Method(last, gate, plan.positions) for gate in plan.options.rules]
        read += [_Thinking(scorer, n, method, wanted) for method in methods for n in range(len(job.members))]
    if read:
        thoughts = [(thinking.demonstrations, thinking.method) for thinking in read]
        yield from think_in_batches(engine, thoughts, _scored(read))
    for thinking in tuned:
        tuning = thinking.scorer.job.tuning
        assert tuning is not None
        training = tuning.training(engine, thinking.demonstrations)
        for _ in training:
            yield Step(thinking.scorer.job, 0)
        yield from thinking.score(training.memory, set())


def job_events(plan: RunPlan, engine: Engine, work: Work, samples: bool) -> Iterator[JobEvent]:
    """Run jobs that are read together, and yield what happens; nothing if no row is missing."""
    numbers = {job: number for number, job in enumerate(job for job, wanted in work if wanted)}
    if not numbers:
        return
    yield Began([_job_info(plan, job, engine.identity.id) for job in numbers])
    for step in run_jobs(plan, engine, work):
        if step.scored or step.row is None:
            yield Scored(numbers[step.job], step.scored)
        if step.row is not None:
            yield Made(numbers[step.job], step.row, tuple(step.predictions) if samples else ())
    yield Ended()


def _job_info(plan: RunPlan, job: RunJob, model: str) -> JobInfo:
    """What is shown of a job."""
    gates, calibration = len(plan.options.rules), plan.options.calibrations[0]
    fewer = job.fewer(model) if job.from_pool else None
    return JobInfo(job.label, job.task.name, job.seed, gates, calibration, fewer)


def _scored(thinkings: Sequence[_Thinking]) -> Callable[[Sequence[int], list[Memory]], Iterator[Step]]:
    """Scores the memories of some of the thinkings; a row is made once, also if its memory is made again."""
    finished: set[str] = set()

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[Step]:
        for number, memory in zip(numbers, memories, strict=True):
            yield from thinkings[number].score(memory, finished)

    return score
