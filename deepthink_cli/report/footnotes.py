"""Footnotes of a table: incomplete jobs, and omitted inputs and demonstrations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deepthink_cli.experiments.results import Result, grouped
from deepthink_cli.report.arms import Arm, is_rival, varying
from deepthink_cli.report.job_results import JobResults, Seed
from deepthink_cli.report.tables import LARGE, span


def footnotes(jobs: Sequence[JobResults]) -> list[str]:
    """The footnotes, one line for each kind of omission."""
    return [
        *shortcomings(jobs),
        *_inputs(jobs),
        *_counts(jobs, "left_out", "Training rows never used as demonstrations"),
        *_asked(jobs, "shots", "Demonstrations (shots)"),
        *_asked(jobs, "labelled", "Labelled rows that corrections are fitted to"),
    ]


def shortcomings(jobs: Sequence[JobResults]) -> list[str]:
    """What the tables lack: jobs, baselines, different seeds, inputs, demonstrations that were asked for."""
    return [
        *_incomplete(jobs),
        *_without_baseline(jobs),
        *_same_seeds(jobs),
        *_paired(jobs),
        *_counts(jobs, "skipped", "Inputs skipped"),
        *_fewer_shots(jobs),
    ]


def _incomplete(jobs: Sequence[JobResults]) -> list[str]:
    """Jobs that lack rows of other jobs of their arm, or seeds of other tasks."""
    seeds_of: dict[tuple[Arm, str, str], list[Seed]] = {}
    for arm, task, seed, state in _gaps(jobs):
        seeds_of.setdefault((arm, task, state), []).append(seed)
    found = [(arm, task, f"{_listed(seeds)}: {state}") for (arm, task, state), seeds in seeds_of.items()]
    listed = _by_arm_and_task(jobs, found)
    return [f"Incomplete jobs, omitted if rows that the table needs are missing: {listed}"] if found else []


def _without_baseline(jobs: Sequence[JobResults]) -> list[str]:
    """The jobs without a baseline, and the run that adds it."""
    missing = [job for job in jobs if job.test and "test" not in job.baselines]
    lines = []
    for is_plain, what, how in (
        (True, "plain in-context learning", "--technique deep-thinking --at 1"),
        (False, "T = 1", "--at 1"),
    ):
        found = [(job.arm, job.task, str(job.seed)) for job in missing if is_rival(job.arm.technique) is is_plain]
        if found:
            lines.append(
                f"No baseline, because there are no rows of {what} with the same demonstrations; to add them, repeat "
                f"deepthink run with {how}: {_by_arm_and_task(jobs, found)}"
            )
    return lines


def _same_seeds(jobs: Sequence[JobResults]) -> list[str]:
    """The seeds that count as one, because their demonstrations and the order are the same."""
    same: dict[tuple[Arm, str, str], list[JobResults]] = {}
    for job in jobs:
        same.setdefault((job.arm, job.task, job.demonstrations), []).append(job)
    repeated = [
        (arm, task, " = ".join(str(job.seed) for job in of_one))
        for (arm, task, _), of_one in same.items()
        if len(of_one) > 1
    ]
    if not repeated:
        return []
    return [
        "Seeds with the same demonstrations in the same order count as one, in a mean if they are the same on all of "
        f"its tasks: {_by_arm_and_task(jobs, repeated)}"
    ]


def _paired(jobs: Sequence[JobResults]) -> list[str]:
    """The jobs that have not scored the same inputs as their baselines, and the number of compared inputs."""
    found = []
    for job in jobs:
        compared = job.compared(next(iter(job.test))) if job.test else None
        if compared is not None and compared.baseline is not None and compared.answers is not None:
            both, most = len(compared.answers[0]), max(compared.result.n, compared.baseline.n)
            if both < most:
                found.append((job.arm, job.task, f"{job.seed} {both} of {most}"))
    return [f"Compared on the inputs that both have: {_by_arm_and_task(jobs, found)}"] if found else []


def _by_arm_and_task(jobs: Sequence[JobResults], found: Sequence[tuple[Arm, str, str]]) -> str:
    """Words about arms and tasks; those of an arm and task are together, and so are tasks with the same words."""
    names = varying([job.arm for job in jobs])
    by_task: dict[tuple[str, str], dict[str, None]] = {}
    for arm, task, words in found:
        by_task.setdefault((arm.label(names, short=True), task), {})[words] = None
    by_words: dict[tuple[str, str], list[str]] = {}
    for (label, task), of_task in by_task.items():
        by_words.setdefault((label, _listed(of_task)), []).append(task)
    return "; ".join(
        _listed([label, *(tasks if len(tasks) <= LARGE else [f"{len(tasks)} tasks"]), words])
        for (label, words), tasks in by_words.items()
    )


def _listed(words: Iterable[object]) -> str:
    return ", ".join(filter(None, map(str, words)))


def _gaps(jobs: Sequence[JobResults]) -> Iterator[tuple[Arm, str, Seed, str]]:
    """Every arm, task and seed that lacks rows, and the rows that it lacks."""
    by_name = {(job.arm, job.task, job.seed): job for job in jobs}
    choosing = {(job.arm.family, job.task) for job in jobs if job.dev}
    families = grouped(jobs, lambda job: (job.arm.family, job.widest_group))
    for (arm, group), peers in grouped(jobs, lambda job: (job.arm, job.widest_group)).items():
        family = families[arm.family, group]
        test, dev = {t for job in peers for t in job.test}, {t for job in peers for t in job.dev}
        for task in dict.fromkeys(job.task for job in family):
            needed = dev if (arm.family, task) in choosing else set()
            for seed in sorted({job.seed for job in family}):
                job = by_name.get((arm, task, seed))
                if job is None:
                    yield arm, task, seed, "no rows"
                    continue
                lacking = {"T = ": sorted(test - job.test.keys()), "dev T = ": sorted(needed - job.dev.keys())}
                if any(lacking.values()):
                    yield arm, task, seed, _listed(f"no {part}{_listed(gap)}" for part, gap in lacking.items() if gap)


def _inputs(jobs: Sequence[JobResults]) -> list[str]:
    """The number of evaluated inputs of every task; of large groups, the total."""
    tested = [job for job in jobs if job.test]
    limits = dict.fromkeys(row.setting.limit for job in tested for row in job.test.values())
    limits.pop(None, None)
    items = []
    for group, members in grouped(tested, lambda job: job.widest_group).items():
        inputs = {
            task: [row.n for job in of_task for row in job.test.values()]
            for task, of_task in grouped(members, lambda job: job.task).items()
        }
        if len(inputs) > LARGE:
            items.append(f"{group} {sum(map(max, inputs.values())):,} in {len(inputs)} tasks")
        else:
            items += [f"{task} {span(values)}" for task, values in inputs.items()]
    sampled = f" (samples: {', '.join(f'at most {limit} a task' for limit in limits)})" if limits else ""
    return [f"Inputs evaluated{sampled}: {'; '.join(items)}"] if items else []


def _counts(jobs: Sequence[JobResults], name: str, text: str) -> list[str]:
    """The numbers of inputs or training rows in a field of results that were not used, by reason."""
    counts: dict[str, dict[str, list[int]]] = {}
    for task, row in _named_rows(jobs):
        for reason, count in getattr(row, name).items():
            counts.setdefault(reason, {}).setdefault(task, []).append(count)
    listed = {
        reason: "; ".join(f"{task} {span(values)}" for task, values in by_task.items())
        for reason, by_task in counts.items()
    }
    return [f"{text} ({reason.replace('_', ' ')}): {names}" for reason, names in listed.items()]


def _asked(jobs: Sequence[JobResults], name: str, text: str) -> list[str]:
    """The requested number in a field of settings, of all tasks together if it is the same."""
    asked: dict[str, set[int]] = {}
    for job in jobs:
        for row in job.test.values():
            if (number := getattr(row.setting, name)) is not None:
                asked.setdefault(job.task, set()).add(number)
    if not asked:
        return []
    alike = len({frozenset(numbers) for numbers in asked.values()}) == 1
    of_all = ", ".join(map(str, sorted(next(iter(asked.values())))))
    each = "; ".join(f"{task} {', '.join(map(str, sorted(numbers)))}" for task, numbers in asked.items())
    return [f"{text}: {of_all if alike else each}"]


def _fewer_shots(jobs: Sequence[JobResults]) -> list[str]:
    """Tasks with fewer demonstrations than requested, because no more fit."""
    fewer: dict[tuple[str, int], list[int]] = {}
    for name, row in _named_rows(jobs):
        if row.demonstrations_used < row.setting.shots:
            fewer.setdefault((name, row.setting.shots), []).append(row.demonstrations_used)
    items = [f"{name} {span(used)} of {asked}" for (name, asked), used in fewer.items()]
    return [f"Fewer demonstrations used than asked: {'; '.join(items)}"] if items else []


def _named_rows(jobs: Sequence[JobResults]) -> Iterator[tuple[str, Result]]:
    """Every test row and its name in a footnote: its task, with its model if there are several."""
    names = [name for name in varying([job.arm for job in jobs]) if name == "model"]
    for job in jobs:
        name = _listed([job.arm.label(names, short=True), job.task])
        yield from ((name, row) for row in job.test.values())
