"""What a table must say beside its cells: jobs that are not whole, inputs and demonstrations that were left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deepthink_cli.report.groups import LARGE, widest
from deepthink_cli.report.jobs import Arm, JobResults, Seed, label, name_of, varying
from deepthink_cli.runs.results import Result


def footnotes(jobs: Sequence[JobResults]) -> list[str]:
    """One line for each kind of thing that is missing."""
    return [*_incomplete(jobs), *_inputs(jobs), *_counts(jobs), *_fewer_shots(jobs), *_unchecked(jobs)]


def _incomplete(jobs: Sequence[JobResults]) -> list[str]:
    """Jobs without all the rows that others of their arm have; a missing seed is one that a sister task has."""
    names = varying([job.arm for job in jobs])
    seeds: dict[tuple[Arm, str, str], list[str]] = {}
    for arm, task, seed, state in _gaps(jobs):
        seeds.setdefault((arm, task, state), []).append(name_of(seed))
    tasks: dict[tuple[Arm, str, str], list[str]] = {}
    for (arm, task, state), own in seeds.items():
        tasks.setdefault((arm, ", ".join(own), state), []).append(task)
    items = []
    for (arm, own_seeds, state), own_tasks in tasks.items():
        items.append(", ".join(filter(None, [label(arm, names, short=True), *own_tasks, own_seeds])) + f": {state}")
    return ["Incomplete jobs, left out where what the table needs is missing: " + "; ".join(items)] if items else []


def _gaps(jobs: Sequence[JobResults]) -> Iterator[tuple[Arm, str, Seed, str]]:
    found = {(job.arm, job.task, job.seed): job for job in jobs}
    test: dict[tuple[Arm, str], set[int]] = {}
    dev: dict[tuple[Arm, str], set[int]] = {}
    choosing: set[tuple[Arm, str]] = set()
    tasks: dict[tuple[Arm, str], dict[str, None]] = {}
    seeds: dict[tuple[Arm, str], set[Seed]] = {}
    for job in jobs:
        family = (job.arm.family, widest(job))
        test.setdefault((job.arm, widest(job)), set()).update(job.test)
        dev.setdefault((job.arm, widest(job)), set()).update(job.dev)
        choosing |= {(job.arm.family, job.task)} if job.dev else set()
        tasks.setdefault(family, {})[job.task] = None
        seeds.setdefault(family, set()).add(job.seed)
    for (arm, block), iterations in test.items():
        for task in tasks[arm.family, block]:
            on_dev = dev[arm, block] if (arm.family, task) in choosing else set()
            for seed in sorted(seeds[arm.family, block], key=lambda seed: (seed[0], seed[1] or 0)):
                state = _state(found.get((arm, task, seed)), iterations, on_dev)
                if state:
                    yield arm, task, seed, state


def _state(job: JobResults | None, test: set[int], dev: set[int]) -> str:
    """What a job lacks; empty where it is whole."""
    if job is None:
        return "no rows"
    lacking = [("T = ", test - job.test.keys()), ("dev T = ", dev - job.dev.keys())]
    return ", ".join(f"no {part}{', '.join(map(str, sorted(gap)))}" for part, gap in lacking if gap)


def _inputs(jobs: Sequence[JobResults]) -> list[str]:
    """How many inputs every task was evaluated on; large groups as one number."""
    counts: dict[str, dict[str, set[int]]] = {}
    sampled: dict[str, None] = {}
    for job in jobs:
        for row in job.test.values():
            counts.setdefault(widest(job), {}).setdefault(job.task, set()).add(row.n)
            if row.setting.limit is not None:
                sampled[f"at most {row.setting.limit} a task"] = None
    items = []
    for group, tasks in counts.items():
        if len(tasks) > LARGE:
            items.append(f"{group} {sum(map(max, tasks.values())):,} in {len(tasks)} tasks")
        else:
            items += [f"{task} {_range(values)}" for task, values in tasks.items()]
    kind = f" (samples: {', '.join(sampled)})" if sampled else ""
    return [f"Inputs evaluated{kind}: {'; '.join(items)}"] if items else []


def _counts(jobs: Sequence[JobResults]) -> list[str]:
    lines = []
    kinds = {"skipped": "Inputs skipped", "left_out": "Training rows never used as demonstrations"}
    for kind, said in kinds.items():
        counts: dict[str, dict[str, set[int]]] = {}
        for name, row in _named_rows(jobs):
            for reason, count in getattr(row, kind).items():
                counts.setdefault(reason, {}).setdefault(name, set()).add(count)
        for reason, by_name in counts.items():
            listed = "; ".join(f"{name} {_range(values)}" for name, values in by_name.items())
            lines.append(f"{said} ({reason.replace('_', ' ')}): {listed}")
    return lines


def _fewer_shots(jobs: Sequence[JobResults]) -> list[str]:
    used: dict[tuple[str, int], set[int]] = {}
    for name, row in _named_rows(jobs):
        if row.shots_used < row.setting.shots:
            used.setdefault((name, row.setting.shots), set()).add(row.shots_used)
    listed = "; ".join(f"{name} {_range(values)} of {asked}" for (name, asked), values in used.items())
    return [f"Fewer demonstrations used than asked: {listed}"] if used else []


def _unchecked(jobs: Sequence[JobResults]) -> list[str]:
    """How many results have no digest of their inputs."""
    rows = [row for job in jobs for row in (*job.test.values(), *job.dev.values())]
    without = sum(row.setting.rows_sha256 is None for row in rows)
    said = (
        f"Results without a digest of their inputs: {without} of {len(rows)}, written by an older version; whether the"
    )
    return [f"{said} inputs of a task were always the same could not be checked"] if without else []


def _named_rows(jobs: Sequence[JobResults]) -> Iterator[tuple[str, Result]]:
    """Every test row and the name it has in a footnote: its task, with its model where there are several."""
    names = [name for name in varying([job.arm for job in jobs]) if name == "model"]
    for job in jobs:
        name = ", ".join(filter(None, [label(job.arm, names, short=True), job.task]))
        yield from ((name, row) for row in job.test.values())


def _range(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
