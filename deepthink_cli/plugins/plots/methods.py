"""The accuracies of methods on the same tasks and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import Result, grouped
from deepthink_cli.report.arms import COMPARED, varying
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds, on_common_inputs
from deepthink_cli.report.tables import TaskScore, in_order, scores_of

Block = tuple[str, Seed]


def methods_of(jobs: Sequence[JobResults], iteration: int | None = None) -> dict[str, list[float]]:
    """The accuracies of every arm at the reported T, and of every baseline, by method and block; random ones first.

    A block is a pair of a task and a seed that all methods have, with their common inputs. Seeds with the same
    demonstrations are one. Raises InputError for arms that differ only in the reading, or cannot be compared.
    """
    if not set(varying([job.arm for job in jobs])) & set(COMPARED):
        ways = "deepthink run --demos-by, --technique or --calibrate"
        raise InputError(f"there is one method only; compare several with {ways}")
    scores = scores_of(jobs, iteration)
    by_arm = grouped(scores, lambda each: each.arm)
    arms = sorted(in_order(by_arm, jobs), key=lambda arm: arm.sampling != "random")
    names = varying(arms)
    results: dict[str, dict[Block, Result]] = {}
    digests: dict[Block, list[str]] = {}
    for arm in arms:
        for each in by_arm[arm]:
            block = each.task, each.seed
            digests.setdefault(block, []).append(each.demonstrations)
            for name, result in _methods(names, each):
                results.setdefault(name, {})[block] = result
    common = set.intersection(*(set(blocks) for blocks in results.values())) if results else set()
    ordered = [block for block in next(iter(results.values()), {}) if block in common]
    ordered = different_seeds(ordered, lambda block: (block[0], *digests[block]))
    answers = [on_common_inputs([blocks[block] for blocks in results.values()]) for block in ordered]
    if not answers:
        raise InputError("no pair of a task and a seed has rows of all methods")
    known = [[sum(right) / len(right) for right in of_block] for of_block in answers]
    return {name: [accuracies[place] for accuracies in known] for place, name in enumerate(results)}


def _methods(names: Sequence[str], score: TaskScore) -> Iterator[tuple[str, Result]]:
    """The names of an arm's baseline, if any, and of the arm, with their results on one task."""
    arm, comparison = score.arm, score.comparison
    if comparison.baseline is not None:
        yield ", ".join(filter(None, [arm.baseline_label(names, short=True), "T = 1"])), comparison.baseline
    last = [] if arm.is_read_once else ["T"]
    yield ", ".join(filter(None, [arm.label(names, short=True), *last])), comparison.result
