"""Time what a run repeats, on the jobs of one task: readings, scored inputs and training steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine
from deepthink_cli.experiments.jobs import RunJob
from deepthink_cli.experiments.plan import RunPlan
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.runner import Work, together
from deepthink_cli.generation.answers import answered
from deepthink_cli.method import Method
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, planned, scored
from deepthink_cli.techniques.together import COPIES, think_in_batches

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


ENOUGH = 1.5  # seconds of scoring after which a sample of inputs is large enough
SIZES = (8, 8, 64, 512)  # inputs of the samples; the first one warms up


@dataclass(frozen=True)
class Amount:
    """What a job repeats.

    Tokens that are read first and again (with a memory), inputs that are tokenised and scored, and training steps.
    """

    first_tokens: int
    later_tokens: int
    tokenized: int
    scored: int
    steps: int


@dataclass(frozen=True)
class Rates:
    """Seconds for each unit of an `Amount`."""

    first_token: float
    later_token: float
    tokenizing: float
    scoring: float
    step: float

    def seconds(self, amount: Amount) -> float:
        """The time that an amount takes."""
        reading = self.first_token * amount.first_tokens + self.later_token * amount.later_tokens
        return reading + self.tokenizing * amount.tokenized + self.scoring * amount.scored + self.step * amount.steps


def amount_of(plan: RunPlan, job: RunJob, wanted: Sequence[Setting]) -> Amount:
    """What a job repeats for its wanted rows; demonstrations that several gates share are read first once."""
    inputs, scored = len(job.evaluated), job.scorings(plan, wanted)
    tokenized = inputs * len({setting.part for setting in wanted})
    length = sum(len(member.token_ids) for member in job.members)
    if job.tuning is not None:
        return Amount(length, 0, tokenized, scored, job.tuning.steps)
    last = max((setting.iteration for setting in wanted), default=1)
    return Amount(length, (last - 1) * len(plan.options.rules) * length, tokenized, scored, 0)


def measure(plan: RunPlan, engine: Engine, work: Work) -> Rates:
    """The rates of one task's jobs: the first of those that are read together, with two readings and some inputs."""
    group = next(iter(together(plan, engine, work)))
    job = group[0][0]
    first_token, later_token, memory = _reading(plan, engine, [each for each, _ in group])
    tokenizing, scoring = _scoring(plan, engine, job, memory)
    tuned = next((each for each, _ in work if each.tuning is not None), None)
    return Rates(first_token, later_token, tokenizing, scoring, 0.0 if tuned is None else _step(engine, tuned))


def _reading(plan: RunPlan, engine: Engine, jobs: Sequence[RunJob]) -> tuple[float, float, Memory]:
    """Seconds for each token of the first reading and of a later one, and a memory."""
    from deepthink_cli.memory import Memory

    iterations = 2 if plan.options.iterations > 1 else 1
    thoughts = [
        (member, Method(iterations, gate, plan.positions))
        for job in jobs
        for gate in plan.options.rules
        for member in job.members
    ]
    longest = max(len(member.token_ids) for member, _ in thoughts)
    thoughts = thoughts[: max(1, engine.tokens_held(COPIES) // longest)]
    ends, memories = [time.perf_counter()], list[Memory]()

    def note(numbers: Sequence[int], read: list[Memory]) -> Iterator[Memory]:
        ends.append(time.perf_counter())
        memories[:] = read[:1]
        yield read[0]

    for _ in think_in_batches(engine, thoughts, note):
        pass
    elapsed = [after - before for before, after in pairwise(ends)]
    distinct = {member.token_ids for member, _ in thoughts}
    first = elapsed[0] / sum(map(len, distinct))
    later = elapsed[-1] / sum(len(member.token_ids) for member, _ in thoughts) if iterations > 1 else 0.0
    return first, later, memories[0]


def _scoring(plan: RunPlan, engine: Engine, job: RunJob, memory: Memory) -> tuple[float, float]:
    """Seconds to tokenise and to score an input, by samples of growing size until one takes long enough."""
    queries, placed = list(job.queries(plan, "test")), engine.place(memory)
    tokenizing = scoring = 0.0
    for number, size in enumerate(SIZES):
        sample = _spread(queries, size)
        started = time.perf_counter()
        if job.task.free is not None:  # answers take long: the first sample must suffice
            for _ in answered(engine, [memory], job.task.free, sample):
                pass
            return 0.0, (time.perf_counter() - started) / len(sample)
        chunks = list(planned(engine, job.demonstrations, sample, size=EVALUATED, skip=UNSCORABLE))
        tokenized = time.perf_counter()
        for chunk in chunks:
            scored(engine, [[placed]], chunk)
        tokenizing, scoring = tokenized - started, time.perf_counter() - tokenized
        if number and (scoring > ENOUGH or len(sample) == len(queries)):
            break
    return tokenizing / len(sample), scoring / len(sample)


def _spread(queries: Sequence[Query], size: int) -> list[Query]:
    """At most `size` queries at even distances, because neighbours may be of like length."""
    return list(queries[:: max(1, len(queries) // size)])[:size]


def _step(engine: Engine, job: RunJob) -> float:
    """Seconds of a training step: the second one."""
    assert job.tuning is not None
    steps = iter(job.tuning.training(engine, job.demonstrations))
    next(steps)
    started = time.perf_counter()
    next(steps)
    return time.perf_counter() - started
