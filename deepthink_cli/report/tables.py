"""The rows of a table, Deep-Thinking against plain in-context learning by arm and task, and groups of tasks."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import ALPHA
from deepthink_cli.experiments.results import grouped
from deepthink_cli.report.arms import Arm
from deepthink_cli.report.baselines import Comparison, mean_plain
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds
from deepthink_cli.report.significance import Discordant, Paired, Spread

LARGE = 10  # the most tasks of a group that are shown one by one; larger groups are shown by their means


def groups_of(jobs: Sequence[JobResults]) -> dict[str, list[str]]:
    """The tasks of every group with more than one task."""
    tasks: dict[str, dict[str, None]] = {}
    for job in jobs:
        for group in job.groups:
            tasks.setdefault(group, {})[job.task] = None
    return {group: list(members) for group, members in tasks.items() if len(members) > 1}


def names_of(jobs: Sequence[JobResults]) -> list[str]:
    """Tasks and groups in the order of a table: a group's tasks, its subgroups, then the group."""
    groups = groups_of(jobs)
    names: list[str] = []
    for widest, members in grouped(jobs, lambda job: job.widest_group).items():
        inner = dict.fromkeys(group for job in members for group in job.groups[1:])
        names += dict.fromkeys(job.task for job in members)
        names += [group for group in (*inner, widest) if group in groups]
    return names


def is_detail(name: str, groups: dict[str, list[str]]) -> bool:
    """Whether this is a task of a large group, of which only means are shown by default."""
    return any(name in tasks and len(tasks) > LARGE for tasks in groups.values())


def in_order(arms: Iterable[Arm], jobs: Sequence[JobResults]) -> list[Arm]:
    """Arms by model, in the order of the jobs, then by their values."""
    models = list(dict.fromkeys(job.arm.model for job in jobs))
    return sorted(arms, key=lambda arm: (models.index(arm.model), arm.sort_key))


def span(numbers: Collection[int]) -> str:
    """The smallest and the largest of some numbers as text; one number if they are equal."""
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Score:
    """One seed's results on a task, or on the tasks of a group, each with its baseline.

    `oracle` is the best accuracy over T (and eta, if eta was chosen) on the test rows themselves, the mean over tasks.
    `iterations` and `etas` are the reported T and eta of each task; `on_dev`: they were chosen on dev rows.
    `demonstrations` has the digest of each task's demonstrations.
    """

    comparisons: tuple[Comparison, ...]
    oracle: float
    iterations: tuple[int, ...]
    etas: tuple[float, ...]
    on_dev: bool
    demonstrations: tuple[str, ...]

    @cached_property
    def plain(self) -> float | None:
        """The accuracy of the baselines, the mean over tasks; None if one is missing."""
        return mean_plain(self.comparisons)

    @cached_property
    def thinking(self) -> float:
        """The accuracy at the reported T, the mean over tasks."""
        return statistics.fmean(each.thinking for each in self.comparisons)

    @cached_property
    def answers(self) -> Discordant:
        """The inputs that only the baseline or only the reported T gets right, summed over tasks."""
        known = [each.discordant for each in self.comparisons if each.discordant is not None]
        return Discordant(sum(each.gained for each in known), sum(each.lost for each in known))


@dataclass(frozen=True)
class TableRow:
    """One arm on one task, or on the mean of `tasks` of the `known` tasks of a group, over its seeds.

    `is_detail` marks a task of a large group, of which tables show only means by default.
    """

    arm: Arm
    name: str
    tasks: int
    known: int
    is_mean: bool
    is_detail: bool
    scores: tuple[Score, ...]

    @cached_property
    def plain(self) -> Spread | None:
        """Accuracy of the baseline; None if there is none."""
        known = [score.plain for score in self.scores if score.plain is not None]
        return Spread.of(known) if len(known) == len(self.scores) else None

    @cached_property
    def thinking(self) -> Spread:
        """Accuracy at the reported T."""
        return Spread.of([score.thinking for score in self.scores])

    @cached_property
    def oracle(self) -> Spread:
        """Accuracy at the T that is best on the test rows."""
        return Spread.of([score.oracle for score in self.scores])

    @cached_property
    def gain(self) -> Paired | None:
        """Accuracy gain of each seed: thinking minus plain; None without a baseline."""
        plain = [score.plain for score in self.scores if score.plain is not None]
        return Paired.of(plain, [score.thinking for score in self.scores]) if len(plain) == len(self.scores) else None

    @property
    def inputs(self) -> int:
        """The number of evaluated inputs of a seed, of all tasks together; the largest if seeds differ."""
        return max(sum(each.result.n for each in score.comparisons) for score in self.scores)

    def settings(self, name: Literal["shots", "limit"]) -> set[int | None]:
        """The values of a field of the settings in the rows of all seeds and tasks."""
        return {getattr(each.result.setting, name) for score in self.scores for each in score.comparisons}

    @property
    def better(self) -> int:
        """The number of seeds with significantly more right answers, by McNemar."""
        return sum(score.answers.p < ALPHA and score.answers.gained > score.answers.lost for score in self.scores)

    @property
    def worse(self) -> int:
        """The number of seeds with significantly fewer right answers, by McNemar."""
        return sum(score.answers.p < ALPHA and score.answers.gained < score.answers.lost for score in self.scores)

    @property
    def on_dev(self) -> bool:
        """Whether the reported T was chosen on dev rows."""
        return any(score.on_dev for score in self.scores)

    @property
    def iterations(self) -> list[int]:
        """The reported T of every seed and task."""
        return [iteration for score in self.scores for iteration in score.iterations]

    @property
    def etas(self) -> list[float]:
        """The reported eta of every seed and task."""
        return [eta for score in self.scores for eta in score.etas]


def summarize(jobs: Sequence[JobResults], iteration: int | None = None) -> list[TableRow]:
    """A row for each arm and task, and for each arm and group of tasks.

    The reported T is `iteration`. By default, T and eta are chosen for each seed on its own dev rows; without dev rows,
    the last T is reported. A seed counts if it has the reported T, on all tasks of a group; if any seed has a baseline,
    only seeds with a baseline count. Seeds with the same demonstrations in the same order are one. Raises InputError
    for an iteration beyond the run.
    """
    last = max((t for job in jobs for t in job.test), default=0)
    if iteration is not None and not 1 <= iteration <= last:
        raise InputError.of("iteration", iteration, f"the run has iterations 1 to {last}; name one of them")
    scores_by_arm = grouped(scores_of(jobs, iteration), lambda each: each.arm)
    groups, names = groups_of(jobs), names_of(jobs)
    rows = []
    for arm in in_order(scores_by_arm, jobs):
        by_seed = {
            seed: {each.task: each.score for each in scores}
            for seed, scores in sorted(grouped(scores_by_arm[arm], lambda each: each.seed).items())
        }
        measured = {each.task for each in scores_by_arm[arm]}
        for name in names:
            members = groups.get(name, [name])
            tasks = [task for task in members if task in measured]
            whole = [[scores[task] for task in tasks] for scores in by_seed.values() if scores.keys() >= {*tasks}]
            if tasks and whole:
                means = _comparable([_mean(scores) for scores in whole])
                rows.append(
                    TableRow(arm, name, len(tasks), len(members), name in groups, is_detail(name, groups), means)
                )
    return rows


Option = tuple[int, float | None]  # T and eta


@dataclass(frozen=True)
class SeedScore:
    """The score of one arm with one seed on one task; the arm has no eta if it was chosen among several."""

    arm: Arm
    task: str
    seed: Seed
    score: Score


def scores_of(jobs: Sequence[JobResults], iteration: int | None) -> list[SeedScore]:
    """The scores of every arm, task and seed that has the rows to report."""
    options = {} if iteration else _options(jobs)
    by_family = grouped(jobs, lambda job: job.arm.family)
    several_etas = {family for family, members in by_family.items() if len({job.arm for job in members}) > 1}
    last = {
        key: max((t for job in members for t in job.test), default=0)
        for key, members in grouped(jobs, lambda job: (job.arm, job.widest_group)).items()
    }

    def reported(job: JobResults) -> tuple[Arm, str, Seed]:
        """Jobs with the same value share one score: the jobs of all etas, if eta is chosen on dev rows."""
        is_shared = (job.arm.family, job.task) in options and job.arm.family in several_etas
        return job.arm.family if is_shared else job.arm, job.task, job.seed

    scores = []
    for (arm, task, seed), sharing in grouped(jobs, reported).items():
        first = sharing[0]
        if (chosen_among := options.get((first.arm.family, task))) is not None:
            score = _score_on_dev(sharing, {option for option in chosen_among if arm.eta in (None, option[1])})
        else:
            of_arm = last[first.arm, first.widest_group]
            score = _score(sharing, first, of_arm if arm.is_read_once else iteration or of_arm, False)
        if score is not None:
            scores.append(SeedScore(arm, task, seed, score))
    return scores


def _options(jobs: Sequence[JobResults]) -> dict[tuple[Arm, str], set[Option]]:
    """For every family and task with dev rows, the pairs of T and eta for which a seed must have dev rows."""
    by_group = {
        key: {(t, job.arm.eta) for job in members for t in job.dev}
        for key, members in grouped(jobs, lambda job: (job.arm.family, job.widest_group)).items()
    }
    return {(job.arm.family, job.task): by_group[job.arm.family, job.widest_group] for job in jobs if job.dev}


def _score_on_dev(jobs: Sequence[JobResults], needed: set[Option]) -> Score | None:
    """The score at the best dev accuracy; ties go to the smaller T, then to the smaller eta.

    None if some dev rows are missing: a choice among the others would not be comparable.
    """
    measured = {
        (t, job.arm.eta): (-row.accuracy, t, job.arm.eta or 0.0, job) for job in jobs for t, row in job.dev.items()
    }
    if not measured or not needed <= measured.keys():
        return None
    _, t, _, job = min(measured.values(), key=lambda option: option[:3])
    return _score(jobs, job, t, True)


def _score(jobs: Sequence[JobResults], chosen: JobResults, iteration: int, on_dev: bool) -> Score | None:
    """The score of one seed on one task; None if its row is missing."""
    if iteration not in chosen.test:
        return None
    return Score(
        comparisons=(chosen.compared(iteration),),
        oracle=max(row.accuracy for job in jobs for row in job.test.values()),
        iterations=(iteration,),
        etas=() if chosen.arm.eta is None else (chosen.arm.eta,),
        on_dev=on_dev,
        demonstrations=(chosen.demonstrations,),
    )


def _mean(scores: Sequence[Score]) -> Score:
    """The mean over the tasks of one seed."""
    return Score(
        comparisons=tuple(each for score in scores for each in score.comparisons),
        oracle=statistics.fmean(score.oracle for score in scores),
        iterations=tuple(t for score in scores for t in score.iterations),
        etas=tuple(eta for score in scores for eta in score.etas),
        on_dev=any(score.on_dev for score in scores),
        demonstrations=tuple(digest for score in scores for digest in score.demonstrations),
    )


def _comparable(scores: Sequence[Score]) -> tuple[Score, ...]:
    """The scores of different demonstrations: only scores with a baseline, or all if none has a baseline."""
    known = [score for score in scores if score.plain is not None] or scores
    return tuple(different_seeds(known, lambda score: score.demonstrations))
