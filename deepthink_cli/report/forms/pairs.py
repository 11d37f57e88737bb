"""Accuracy at T = 1 and at T of every job, in percent: what the forms draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.errors import InputError
from deepthink_cli.report.job_results import JobResults, Seed


@dataclass(frozen=True)
class Pair:
    """One job: its accuracy at T = 1 and at T = `iteration`, in percent."""

    model: str
    task: str
    seed: Seed
    shots: int
    iteration: int
    plain: float
    thinking: float


def pairs(jobs: Sequence[JobResults], iteration: int | None) -> list[Pair]:
    """The jobs that have test rows at T = 1 and at the T of the form, or their last one; raises InputError for none."""
    last = max((t for job in jobs for t in job.test), default=1)
    wanted, found = min(iteration or last, last), list[Pair]()
    for job in jobs:
        if 1 in job.test and wanted in job.test:
            first, then = job.test[1], job.test[wanted]
            found.append(
                Pair(
                    model=job.arm.model,
                    task=job.task,
                    seed=job.seed,
                    shots=first.setting.shots,
                    iteration=wanted,
                    plain=100 * first.accuracy,
                    thinking=100 * then.accuracy,
                )
            )
    if not found:
        raise InputError(f"no job has rows at T = 1 and at T = {wanted} yet; let the study run on")
    return found


def distinct(values: Sequence[str]) -> list[str]:
    """The different values, in their order."""
    return list(dict.fromkeys(values))
