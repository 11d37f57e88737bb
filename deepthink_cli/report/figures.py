"""Figures: their style, and for every task or mean the accuracy by T, and its difference from T = 1, over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from deepthink_cli.experiments.results import Part, grouped
from deepthink_cli.report.arms import Arm
from deepthink_cli.report.job_results import PARTS, JobResults, different_seeds, mean_plain
from deepthink_cli.report.significance import Paired, Spread
from deepthink_cli.report.tables import LARGE, groups_of, in_order, is_detail, names_of

# Metadata to omit, by suffix, because it differs between files of the same figure.
METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
COLUMN, PAGE = 3.3, 7.0  # widths in inches
# Okabe and Ito's colours without yellow, which is too pale for a line; markers distinguish them in greyscale.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^Dv<>PX"
GREY = "#555555"
STYLE: Any = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "deepthink",
    "pdf.fonttype": 42,
}
LEGEND: Any = {
    "loc": "outside upper center",
    "frameon": False,
    "handlelength": 2.4,
    "columnspacing": 1.2,
    "labelspacing": 0.3,
    "borderaxespad": 0.2,
}


@dataclass(frozen=True)
class Curve:
    """Accuracy of one arm by T, the mean over `tasks` tasks, of the seeds that have every T on all of them.

    By T, `points` are the accuracies over seeds, and `gains` the accuracies less the baseline's, seed by seed. `plain`
    are the accuracies of the baseline. If a baseline is missing, `gains` is empty and `plain` None.
    """

    arm: Arm
    part: Part
    tasks: int
    points: Mapping[int, Spread]
    gains: Mapping[int, Paired]
    plain: Sequence[float] | None


@dataclass(frozen=True)
class Panel:
    """The curves of one task, or of the mean over a group; `majority` is None if unknown."""

    name: str
    is_mean: bool
    curves: tuple[Curve, ...]
    majority: float | None


def panels(jobs: Sequence[JobResults], tasks: bool = False) -> list[Panel]:
    """A panel for each task and group, in the order of a table; tasks of large groups only with `tasks`."""
    groups = groups_of(jobs)
    by_arm = grouped(jobs, lambda job: job.arm)
    arms = in_order(by_arm, jobs)
    shown = []
    for name in names_of(jobs):
        if is_detail(name, groups) and not tasks:
            continue
        members = groups.get(name, [name])
        curves = tuple(curve for arm in arms for curve in _curves(arm, by_arm[arm], members))
        is_task = name in groups and max((curve.tasks for curve in curves), default=1) == 1  # its task has a panel
        if curves and not (is_task and (tasks or len(members) <= LARGE)):
            majority = _majority([job for job in jobs if job.task in members])
            shown.append(Panel(name, name in groups, curves, majority))
    return shown


def with_gains(shown: Sequence[Panel]) -> list[Panel]:
    """The panels with the curves whose differences from T = 1 are known, without empty panels."""
    known = [replace(panel, curves=tuple(curve for curve in panel.curves if curve.gains)) for panel in shown]
    return [panel for panel in known if panel.curves]


def _curves(arm: Arm, jobs: Sequence[JobResults], members: Sequence[str]) -> list[Curve]:
    """The curves of an arm on the mean of its member tasks, of test rows and of dev rows.

    A job is complete if it has every T of its arm in the same widest groups. A seed is complete if it has a complete
    job on every task that any seed has completed. Seeds with the same demonstrations in the same order are one.
    """
    groups = {job.widest_group for job in jobs if job.task in members}
    curves = []
    for part in PARTS:
        iterations = sorted({t for job in jobs if job.widest_group in groups for t in job.part(part)})
        complete = [
            job for job in jobs if job.task in members and job.part(part) and {*iterations} <= {*job.part(part)}
        ]
        tasks = list(dict.fromkeys(job.task for job in complete))
        by_seed = [[job for job in complete if job.seed == seed] for seed in sorted({job.seed for job in complete})]
        whole = [of_seed for of_seed in by_seed if len(of_seed) == len(tasks)]
        seeds = different_seeds(whole, lambda of_seed: tuple(job.demonstrations for job in of_seed))
        if seeds:
            curves.append(_curve(arm, part, seeds, iterations))
    return curves


def _curve(arm: Arm, part: Part, seeds: Sequence[Sequence[JobResults]], iterations: Sequence[int]) -> Curve:
    """The curve of seeds, each with its jobs on the same tasks."""
    points, gains, plain = dict[int, Spread](), dict[int, Paired](), list[float]()
    for t in iterations:
        compared = [[job.compared(t, part) for job in of_seed] for of_seed in seeds]
        points[t] = Spread.of([fmean(each.result.accuracy for each in of_seed) for of_seed in compared])
        known = [each for each in map(mean_plain, compared) if each is not None]
        if len(known) == len(seeds):
            gains[t] = Paired.of(known, [fmean(each.thinking for each in of_seed) for of_seed in compared])
            plain = plain or known
    is_known = len(gains) == len(iterations)
    return Curve(arm, part, len(seeds[0]), points, gains if is_known else {}, plain if is_known else None)


def _majority(jobs: Sequence[JobResults]) -> float | None:
    """The mean over tasks of the accuracy of always predicting the most frequent label; None if a task has none."""
    by_task = [
        [row.majority for job in of_task for row in job.test.values() if row.majority is not None]
        for of_task in grouped(jobs, lambda job: job.task).values()
    ]
    return fmean(fmean(values) for values in by_task) if all(by_task) else None
