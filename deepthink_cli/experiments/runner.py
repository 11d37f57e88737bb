"""Run jobs: read their demonstrations in shared passes, and score every iteration as it is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from deepthink_cli.engine.base import Engine
from deepthink_cli.experiments.executors.messages import JobEvent
from deepthink_cli.experiments.jobs import Job
from deepthink_cli.experiments.progress import InputsScored, JobsDone, JobsStarted
from deepthink_cli.experiments.results import Setting
from deepthink_cli.experiments.scorer import JobScorer
from deepthink_cli.method import Method
from deepthink_cli.techniques.base import Trained
from deepthink_cli.techniques.together import COPIES, think_in_batches

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


def max_tokens_together(engine: Engine) -> int:
    """The most tokens of demonstrations that the engine reads in one pass."""
    return min(engine.tokens_together, engine.tokens_held(COPIES))


def together(jobs: Iterable[Job], most: int) -> Iterator[list[Job]]:
    """Neighbouring jobs of one task whose readings, with every gate, fit one pass of `most` tokens, which is faster.

    Finished jobs keep their group, so that resumed runs are identical to runs that were never stopped.
    """
    for _, of_task in groupby(jobs, key=lambda job: job.task.name):
        group, tokens = list[Job](), 0
        for job in of_task:
            length = len(job.run.options.rules) * sum(len(member.token_ids) for member in job.members)
            if group and tokens + length > most:
                yield group
                group, tokens = [], 0
            group.append(job)
            tokens += length
        yield group


def check_ids(engine: Engine, jobs: Iterable[Job]) -> None:
    """Raise InputError for a token of the demonstrations that the model does not have."""
    for job in jobs:
        for member in job.members:
            engine.check_ids(member.token_ids, f"task {job.label}: demonstrations")


def work(engine: Engine, wanted: Mapping[Job, Sequence[Setting]], samples: bool = False) -> Iterator[JobEvent]:
    """Read jobs together, and make the rows that are wanted of each; yields nothing if there are none.

    Jobs without any are read all the same: rows do not depend on what is missing. As many memories are made together
    as fit the free memory of the device.
    """
    scorers = [JobScorer(engine, job, settings, samples) for job, settings in wanted.items()]
    jobs = [scorer.info for scorer in scorers if scorer.wanted]
    if not jobs:
        return
    yield JobsStarted(jobs)
    yield from _read(engine, [scorer for scorer in scorers if scorer.job.tuning is None])
    for scorer in scorers:
        if scorer.wanted and scorer.job.tuning is not None:
            yield from _trained(engine, scorer, scorer.job.tuning)
    yield JobsDone(jobs)


def _read(engine: Engine, scorers: Sequence[JobScorer]) -> Iterator[JobEvent]:
    """Think once for every job and gate, in shared passes, and score the iterations as they are made."""
    last = max((setting.iteration for scorer in scorers for setting in scorer.wanted), default=1)
    made = [
        (scorer, member, rule)
        for scorer in scorers
        for rule in scorer.job.run.options.rules
        for member in range(len(scorer.job.members))
    ]

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[JobEvent]:
        for number, memory in zip(numbers, memories, strict=True):
            scorer, member, rule = made[number]
            yield from scorer.score(member, rule, memory)

    if made:
        positions = scorers[0].job.run.positions
        thoughts = [(scorer.job.members[member], Method(last, rule, positions)) for scorer, member, rule in made]
        yield from think_in_batches(engine, thoughts, score)


def _trained(engine: Engine, scorer: JobScorer, tuning: Trained) -> Iterator[JobEvent]:
    """Train the one memory of a job, and score it; a step of the training scores no inputs."""
    training = tuning.training(engine, scorer.job.demonstrations)
    for _ in training:
        yield InputsScored(scorer.info, 0)
    yield from scorer.score(0, scorer.wanted[0].gate, training.memory)
