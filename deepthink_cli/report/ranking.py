"""Ranks of methods over tasks and seeds, with Friedman's test, the critical difference, and its diagram."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.experiments.results import Result
from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.baselines import on_common_inputs
from deepthink_cli.report.figures import DPI, GREY, METADATA, PAGE, STYLE
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds, grouped
from deepthink_cli.report.tables import Score, in_order, scores_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST_METHODS, FEWEST_BLOCKS = 3, 5


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over blocks, the best first; rank 1 is the highest accuracy of a block.

    `p` is that of Friedman's test in Iman and Davenport's form; two methods whose mean ranks differ by less than
    `critical_difference` do not differ at the 5 % level (Nemenyi).
    """

    ranks: Mapping[str, float]
    means: Mapping[str, float]
    blocks: int
    p: float
    critical_difference: float

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The largest sets of neighbouring methods that do not differ, of at least two methods each."""
        names, found = list(self.ranks), list[tuple[int, int]]()
        for first, last in combinations(range(len(names)), 2):
            if self.ranks[names[last]] - self.ranks[names[first]] < self.critical_difference:
                found.append((first, last))
        largest = [(a, b) for a, b in found if not any((c <= a and b <= d) and (a, b) != (c, d) for c, d in found)]
        return [tuple(names[first : last + 1]) for first, last in largest]


def rank(accuracies: Mapping[str, Sequence[float]]) -> Ranking | str:
    """Rank methods by their accuracies on the same blocks, or say in one line why they cannot be ranked.

    Equal accuracies of a block share their mean rank. The statistic is F = (N - 1) X / (N (k - 1) - X) with k - 1 and
    (k - 1) (N - 1) degrees of freedom, X being Friedman's chi-square with the correction for ties; the critical
    difference is q sqrt(k (k + 1) / (6 N)) (Demsar 2006, section 3.2.2).
    """
    methods, blocks = len(accuracies), len(next(iter(accuracies.values()), ()))
    if methods < FEWEST_METHODS or blocks < FEWEST_BLOCKS:
        return (
            f"too few to rank: {methods} methods on {blocks} pairs of a task and a seed that all of them have; "
            f"Friedman's test needs {FEWEST_METHODS} and {FEWEST_BLOCKS}"
        )
    import numpy as np
    from scipy.special import fdtrc
    from scipy.stats import rankdata, studentized_range

    table = np.array(list(accuracies.values())).T  # (N, k)
    ranks_Nk = rankdata(-table.round(12), axis=1)
    mean_ranks = ranks_Nk.mean(axis=0)
    within = ((ranks_Nk - (methods + 1) / 2) ** 2).sum() / (blocks * (methods - 1))
    between = blocks * ((mean_ranks - (methods + 1) / 2) ** 2).sum()
    statistic = float(between / within) if within else 0.0
    left = blocks * (methods - 1) - statistic
    f = (blocks - 1) * statistic / left if left > 1e-9 else math.inf
    p = float(fdtrc(methods - 1, (methods - 1) * (blocks - 1), f)) if math.isfinite(f) else 0.0
    q = float(studentized_range.ppf(0.95, methods, math.inf)) / math.sqrt(2)
    names = sorted(accuracies, key=lambda name: (mean_ranks[list(accuracies).index(name)], name))
    by_name = dict(zip(accuracies, mean_ranks.tolist(), strict=True))
    means = dict(zip(accuracies, table.mean(axis=0).tolist(), strict=True))
    return Ranking(
        {name: by_name[name] for name in names},
        {name: means[name] for name in names},
        blocks,
        p,
        q * math.sqrt(methods * (methods + 1) / (6 * blocks)),
    )


COMPARED = (
    "sampling",
    "pool_size",
    "balanced",
    "technique",
    "calibration",
    "score",
    "reread",
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
    by_arm = grouped(scores, lambda each: each.arm)
    arms = in_order(by_arm, jobs)
    names = varying(arms)
    results: dict[str, dict[Block, Result]] = {}
    digests: dict[Block, list[str]] = {}
    for arm in arms:
        for each in by_arm[arm]:
            block = each.task, each.seed
            digests.setdefault(block, []).extend(each.score.demonstrations)
            for name, result in _methods(arm, names, each.score):
                results.setdefault(name, {})[block] = result
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


LINE = 0.17  # inches between the names of two methods
BAR = 0.09  # inches between two bars
AXIS = 0.55  # inches above the first bar


def draw_ranking(ranking: Ranking, files: Mapping[Path, str]) -> None:
    """Draw the diagram once and write it to every file, in the format of the suffix that `files` gives it."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = _figure(ranking)
        FigureCanvasAgg(figure)
        for path, suffix in files.items():
            # Tight: the names of methods may be long.
            figure.savefig(
                path, format=suffix.removeprefix("."), dpi=DPI, metadata=METADATA[suffix], bbox_inches="tight"
            )


def _figure(ranking: Ranking) -> Figure:
    """The best methods are named on the left, the others on the right."""
    from matplotlib.figure import Figure

    methods, bars = len(ranking.ranks), ranking.groups
    half = (methods + 1) // 2
    height = AXIS + BAR * (len(bars) + 1) + LINE * (half + 1) + 0.25
    figure = Figure(figsize=(PAGE, height))
    axes = figure.add_axes((0.3, 0, 0.4, 1))
    axes.set_xlim(1, methods)
    axes.set_ylim(height, 0)
    axes.axis("off")
    _draw_axis(axes, ranking)
    below = AXIS + BAR * (len(bars) + 1)
    for number, group in enumerate(bars, start=1):
        low, high = ranking.ranks[group[0]], ranking.ranks[group[-1]]
        axes.plot([low - 0.05, high + 0.05], [AXIS + BAR * number] * 2, color="black", linewidth=2.2, clip_on=False)
    for place, (name, mean) in enumerate(ranking.ranks.items()):
        is_left = place < half
        y = below + LINE * (place + 1 if is_left else methods - place)
        end = 1 - 0.03 * (methods - 1) if is_left else methods + 0.03 * (methods - 1)
        axes.plot([mean, mean, end], [AXIS, y, y], color=GREY, linewidth=0.7, clip_on=False)
        axes.text(end, y, f" {name} ({mean:.2f}) ", ha="right" if is_left else "left", va="center")
    return figure


def _draw_axis(axes: Axes, ranking: Ranking) -> None:
    methods = len(ranking.ranks)
    axes.plot([1, methods], [AXIS, AXIS], color="black", linewidth=0.8, clip_on=False)
    step = 1 if methods <= 20 else 5
    for tick in range(1, methods + 1, step):
        axes.plot([tick, tick], [AXIS - 0.05, AXIS], color="black", linewidth=0.8, clip_on=False)
        axes.text(tick, AXIS - 0.08, str(tick), ha="center", va="bottom")
    cd = ranking.critical_difference
    axes.plot([1, 1 + cd], [0.2, 0.2], color="black", linewidth=1.2, clip_on=False)
    words = f"critical difference {cd:.2f}; {ranking.blocks} pairs of a task and a seed; Friedman p {_p(ranking.p)}"
    axes.text(1, 0.15, words, ha="left", va="bottom")


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
