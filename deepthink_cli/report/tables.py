"""The rows of a table, Deep-Thinking against plain in-context learning by arm and task, and groups of tasks."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import ALPHA, mcnemar
from deepthink_cli.experiments.results import grouped
from deepthink_cli.report.arms import Arm
from deepthink_cli.report.job_results import Comparison, JobResults, Seed, different_seeds, mean_plain
from deepthink_cli.report.significance import Paired, Spread
from deepthink_cli.techniques.registry import trains

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
class TaskScore(Comparison):
    """The reported result of one arm with one seed on one task, and its baseline.

    The arm has no eta if it was chosen among several; `on_dev`: T (and eta) were chosen on dev rows. `oracle` is the
    best accuracy over T (and eta, if eta was chosen) on the test rows themselves.
    """

    arm: Arm
    task: str
    seed: Seed
    oracle: float
    on_dev: bool


@dataclass(frozen=True)
class Score:
    """One seed's scores on a task, or on the tasks of a group."""

    of_tasks: tuple[TaskScore, ...]

    @cached_property
    def plain(self) -> float | None:
        """The accuracy of the baselines, the mean over tasks; None if one is missing."""
        return mean_plain(self.of_tasks)

    @cached_property
    def thinking(self) -> float:
        """The accuracy at the reported T, the mean over tasks."""
        return statistics.fmean(each.thinking for each in self.of_tasks)

    @cached_property
    def oracle(self) -> float:
        """The best accuracy over T, the mean over tasks."""
        return statistics.fmean(each.oracle for each in self.of_tasks)

    @cached_property
    def changed(self) -> tuple[int, int]:
        """The number of inputs that only the reported T, and that only the baseline gets right, summed over tasks."""
        answers = [each.answers for each in self.of_tasks if each.answers is not None]
        steps = [after - before for pair in answers for before, after in zip(*pair, strict=True)]
        return steps.count(1), steps.count(-1)


@dataclass(frozen=True)
class PublishedFigure:
    """One published accuracy, in percent, and the number of its table."""

    accuracy: float
    table: int


@dataclass(frozen=True)
class TableRow:
    """One arm on one task, or on the mean of `tasks` of the `known` tasks of a group, over its seeds.

    `is_detail` marks a task of a large group, of which tables show only means by default. `paper_plain` and
    `paper_thinking` are published figures for the same model and task, if any.
    """

    arm: Arm
    name: str
    tasks: int
    known: int
    is_mean: bool
    is_detail: bool
    scores: tuple[Score, ...]
    paper_plain: PublishedFigure | None = None
    paper_thinking: PublishedFigure | None = None

    @property
    def of_tasks(self) -> list[TaskScore]:
        """The scores of every seed and task."""
        return [each for score in self.scores for each in score.of_tasks]

    @property
    def paper_table(self) -> int | None:
        """The number of the published table."""
        figure = self.paper_plain or self.paper_thinking
        return figure.table if figure else None

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
        return max(sum(each.result.n for each in score.of_tasks) for score in self.scores)

    @property
    def better(self) -> int:
        """The number of seeds with significantly more right answers, by McNemar."""
        return sum(
            gained > lost and mcnemar(gained, lost) < ALPHA for gained, lost in (score.changed for score in self.scores)
        )

    @property
    def worse(self) -> int:
        """The number of seeds with significantly fewer right answers, by McNemar."""
        return sum(
            gained < lost and mcnemar(gained, lost) < ALPHA for gained, lost in (score.changed for score in self.scores)
        )

    @property
    def on_dev(self) -> bool:
        """Whether the reported T was chosen on dev rows."""
        return any(each.on_dev for each in self.of_tasks)

    @property
    def iterations(self) -> list[int]:
        """The reported T of every seed and task."""
        return [each.result.setting.iteration for each in self.of_tasks]

    @property
    def etas(self) -> list[float]:
        """The reported eta of every seed and task; none of a trained memory."""
        return [setting.eta for each in self.of_tasks if not trains((setting := each.result.setting).technique)]


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
        by_seed = sorted(grouped(scores_by_arm[arm], lambda each: each.seed).items())
        measured = {each.task for each in scores_by_arm[arm]}
        for name in names:
            members = groups.get(name, [name])
            tasks = [task for task in members if task in measured]
            of_seeds = [[each for each in scores if each.task in tasks] for _, scores in by_seed]
            whole = [Score(tuple(scores)) for scores in of_seeds if len(scores) == len(tasks)]
            if tasks and whole:
                known = [score for score in whole if score.plain is not None] or whole
                different = different_seeds(
                    known, lambda score: tuple(each.result.demonstrations_sha256 for each in score.of_tasks)
                )
                detail = is_detail(name, groups)
                rows.append(TableRow(arm, name, len(tasks), len(members), name in groups, detail, tuple(different)))
    return rows


Option = tuple[int, float | None]  # T and eta


def scores_of(jobs: Sequence[JobResults], iteration: int | None) -> list[TaskScore]:
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
        first, chosen_among = sharing[0], options.get((sharing[0].arm.family, task))
        if chosen_among is not None:
            chosen = _chosen_on_dev(sharing, {option for option in chosen_among if arm.eta in (None, option[1])})
        else:
            of_arm = last[first.arm, first.widest_group]
            chosen = first, of_arm if arm.is_read_once else iteration or of_arm
        if chosen is not None and chosen[1] in chosen[0].test:
            oracle = max(row.accuracy for job in sharing for row in job.test.values())
            job, t = chosen
            baseline = job.baselines.get("test")
            scores.append(TaskScore(job.test[t], baseline, arm, task, seed, oracle, chosen_among is not None))
    return scores


def _options(jobs: Sequence[JobResults]) -> dict[tuple[Arm, str], set[Option]]:
    """For every family and task with dev rows, the pairs of T and eta for which a seed must have dev rows."""
    by_group = {
        key: {(t, job.arm.eta) for job in members for t in job.dev}
        for key, members in grouped(jobs, lambda job: (job.arm.family, job.widest_group)).items()
    }
    return {(job.arm.family, job.task): by_group[job.arm.family, job.widest_group] for job in jobs if job.dev}


def _chosen_on_dev(jobs: Sequence[JobResults], needed: set[Option]) -> tuple[JobResults, int] | None:
    """The job and T of the best dev accuracy; ties go to the smaller T, then to the smaller eta.

    None if some dev rows are missing: a choice among the others would not be comparable.
    """
    measured = {
        (t, job.arm.eta): (-row.accuracy, t, job.arm.eta or 0.0, job) for job in jobs for t, row in job.dev.items()
    }
    if not measured or not needed <= measured.keys():
        return None
    _, t, _, job = min(measured.values(), key=lambda option: option[:3])
    return job, t
