"""Accuracy at T = 1 and at T of every job, in percent: what the forms draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.errors import InputError
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds


@dataclass(frozen=True)
class Pair:
    """One job: the accuracy of its baseline and at T = `iteration`, in percent."""

    model: str
    task: str
    seed: Seed
    shots: int
    iteration: int
    plain: float
    thinking: float


def pairs(jobs: Sequence[JobResults], iteration: int | None) -> list[Pair]:
    """The jobs that have a baseline and test rows at the T of the form, or at the last one; raises InputError for none.

    Of those with the same demonstrations in the same order only the first.
    """
    last = max((t for job in jobs for t in job.test), default=1)
    wanted, found = min(iteration or last, last), list[Pair]()
    scored = [job for job in jobs if wanted in job.test]
    for job in different_seeds(scored, lambda job: (job.arm, job.task, job.seed.order is None, job.demonstrations)):
        compared = job.compared(wanted)
        if compared.plain is not None:
            found.append(
                Pair(
                    model=job.arm.model,
                    task=job.task,
                    seed=job.seed,
                    shots=compared.result.setting.shots,
                    iteration=wanted,
                    plain=100 * compared.plain,
                    thinking=100 * compared.thinking,
                )
            )
    if not found:
        raise InputError(f"no job has rows at T = 1 and at T = {wanted} yet; continue the study")
    return found


def distinct(values: Sequence[str]) -> list[str]:
    """The different values, in their order."""
    return list(dict.fromkeys(values))
