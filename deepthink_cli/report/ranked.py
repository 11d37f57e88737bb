"""The methods of runs, ranked over the tasks and seeds that all of them have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.baselines import on_common_inputs
from deepthink_cli.report.groups import in_order
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds
from deepthink_cli.report.ranking import Ranking, rank
from deepthink_cli.report.tables import Score, scores_of
from deepthink_cli.runs.results import Result

COMPARED = (
    "sampling",
    "pool_size",
    "balanced",
    "technique",
    "calibration",
    "score",
    "update",
)  # what makes a method to be ranked


Block = tuple[str, Seed]


def ranking_of(jobs: Sequence[JobResults], iteration: int | None = None) -> Ranking | str | None:
    """Every arm at the reported T as a method, and every baseline; None if arms differ in nothing but the reading.

    A pair of a task and a seed counts if all methods have it, on the inputs that all of them have; seeds with the same
    demonstrations are one. One line of text if there are too few tasks, seeds or methods.
    """
    if not set(varying([job.arm for job in jobs])) & set(COMPARED):
        return None
    if "limit" in varying([job.arm for job in jobs]):
        return "there are several samples of the test rows; choose one with --where limit=N"
    scores = scores_of(jobs, iteration)
    arms = in_order(dict.fromkeys(scores["arm"]), jobs)
    names = varying(arms)
    results: dict[str, dict[Block, Result]] = {}
    digests: dict[Block, list[str]] = {}
    for arm in arms:
        of_arm = scores[scores["arm"] == arm]
        for task, seed, score in zip(of_arm["task"], of_arm["seed"], of_arm["score"], strict=True):
            digests.setdefault((task, seed), []).extend(score.demonstrations)
            for name, result in _methods(arm, names, score):
                results.setdefault(name, {})[task, seed] = result
    common = set.intersection(*(set(blocks) for blocks in results.values())) if results else set()
    ordered = [block for block in next(iter(results.values()), {}) if block in common]
    ordered = different_seeds(ordered, lambda block: (block[0], *digests[block]))
    answers = [on_common_inputs([blocks[block] for blocks in results.values()]) for block in ordered]
    known = [[sum(right) / len(right) for right in of_block] for of_block in answers if of_block is not None]
    return rank({name: [accuracies[place] for accuracies in known] for place, name in enumerate(results)})


def _methods(arm: Arm, names: Sequence[str], score: Score) -> Iterator[tuple[str, Result]]:
    """The names of an arm's baseline, if it is there, and of the arm, with their results on one task."""
    (comparison,) = score.comparisons
    if comparison.baseline is not None:
        yield ", ".join(filter(None, [arm.baseline_label(names, short=True), "T = 1"])), comparison.baseline
    last = [] if arm.is_read_once else ["T"]
    yield ", ".join(filter(None, [arm.label(names, short=True), *last])), comparison.result
