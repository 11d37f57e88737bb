"""The methods of runs, ranked over the tasks and seeds that all of them have."""

from __future__ import annotations

from collections.abc import Sequence

from deepthink_cli.report.arms import READING, Arm, varying
from deepthink_cli.report.groups import in_order
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.ranking import Ranking, rank
from deepthink_cli.report.tables import scores_of

COMPARED = (
    "sampling",
    "pool_size",
    "balanced",
    "technique",
    "calibration",
    "score",
    "update",
)  # what makes a method to be ranked


def ranking_of(jobs: Sequence[JobResults], iteration: int | None = None) -> Ranking | str | None:
    """Every arm at T = 1 and at the reported T as a method; None if arms differ in nothing but the reading.

    One line of text if there are too few tasks, seeds or methods.
    """
    if not set(varying([job.arm for job in jobs])) & set(COMPARED):
        return None
    if "limit" in varying([job.arm for job in jobs]):
        return "there are several samples of the test rows; choose one with --where limit=N"
    scores = scores_of(jobs, iteration)
    arms = in_order(dict.fromkeys(scores["arm"]), jobs)
    names = varying(arms)
    accuracies: dict[str, dict[tuple[object, ...], float]] = {}
    for arm in arms:
        of_arm = scores[scores["arm"] == arm]
        for task, seed, score in zip(of_arm["task"], of_arm["seed"], of_arm["score"], strict=True):
            block = (task, seed)
            accuracies.setdefault(_label(arm, names, thinking=False), {})[block] = score.plain
            accuracies.setdefault(_label(arm, names, thinking=True), {})[block] = score.thinking
    common = set.intersection(*(set(blocks) for blocks in accuracies.values())) if accuracies else set()
    ordered = [block for block in next(iter(accuracies.values()), {}) if block in common]
    return rank({name: [blocks[block] for block in ordered] for name, blocks in accuracies.items()})


def _label(arm: Arm, names: Sequence[str], thinking: bool) -> str:
    if not thinking:
        plain = [name for name in names if name not in (*READING, "technique" if arm.is_compared_with_plain else "")]
        return ", ".join(filter(None, [arm.label(plain, short=True), "T = 1"]))
    last = [] if arm.is_read_once else ["T"]
    return ", ".join(filter(None, [arm.label(names, short=True), *last]))
