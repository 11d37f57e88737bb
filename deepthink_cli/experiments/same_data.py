"""Check that results come from the same data.

A setting names its data by task, split and seed; its digests identify their contents. Results with the same
names and different digests must not share a folder or a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepthink_cli.errors import Problems, option
from deepthink_cli.experiments.results import Result, Setting

TASK, DEMONSTRATIONS, ROWS, LABELLED = "task_sha256", "demonstrations_sha256", "rows_sha256", "labelled_sha256"
OTHER = {
    TASK: "another definition of the task",
    DEMONSTRATIONS: "other demonstrations",
    ROWS: "other evaluated rows",
    LABELLED: "other labelled rows",
}

Name = tuple[object, ...]


def check_continues(rows: Iterable[Result], planned: Sequence[Setting]) -> None:
    """Raise InputError if rows of a folder come from other data than the plan; one line for each job and part."""
    known = {name: getattr(setting, digest) for setting in planned for digest, name in _names(setting).items()}
    differing: dict[Name, list[tuple[Result, list[str]]]] = {}
    for row in rows:
        names, digests = _names(row.setting), _digests(row)
        other = [name for name in OTHER if known.get(names[name], digests[name]) != digests[name]]
        if other:
            setting = row.setting
            job = (setting.task, setting.seed, setting.order_seed, setting.part)
            differing.setdefault(job, []).append((row, other))
    problems = Problems()
    problems.add(*map(_refusal, differing.values()))
    problems.raise_any()


def check_agree(rows: Iterable[Result]) -> None:
    """Raise InputError if results that name the same data were made from different data; one line for each name."""
    first: dict[Name, Result] = {}
    messages: dict[Name, str] = {}
    for row in rows:
        names, digests = _names(row.setting), _digests(row)
        for digest in (DEMONSTRATIONS, ROWS, LABELLED):
            seen = first.setdefault(names[digest], row)
            if _digests(seen)[digest] != digests[digest]:
                message = (
                    f"{_job(row)}: {row.where} has {OTHER[digest]} than {seen.where}; report their runs "
                    "separately, or remove the rows of one of them"
                )
                messages.setdefault(names[digest], message)
    problems = Problems()
    problems.add(*messages.values())
    problems.raise_any()


def _names(setting: Setting) -> dict[str, Name]:
    """For every digest, the fields that determine it as long as the data do not change."""
    pool = (setting.pool_size, setting.balanced, setting.technique)
    drawn = (setting.sampling, setting.shots, setting.seed, setting.order_seed, *pool)
    task = (setting.task, setting.task_sha256, setting.protocol)
    dev = drawn if setting.part == "dev" else ()  # dev rows depend on the demonstrations, which are excluded
    return {
        TASK: (TASK, setting.task),
        DEMONSTRATIONS: (
            DEMONSTRATIONS,
            *task,
            setting.model_sha256,
            setting.positions,
            setting.tokens,
            setting.chat,
            *drawn,
        ),
        ROWS: (ROWS, *task, setting.part, setting.split, setting.limit, *dev),
        LABELLED: (LABELLED, *task, setting.labelled, *drawn),
    }


def _digests(row: Result) -> dict[str, str | None]:
    setting = row.setting
    return {
        TASK: setting.task_sha256,
        DEMONSTRATIONS: row.demonstrations_sha256,
        ROWS: setting.rows_sha256,
        LABELLED: setting.labelled_sha256,
    }


def _job(row: Result) -> str:
    order = "" if row.setting.order_seed is None else f" in order {row.setting.order_seed}"
    return f"{row.setting.task}, seed {row.setting.seed}{order}, {row.setting.part}"


def _refusal(job: Sequence[tuple[Result, Sequence[str]]]) -> str:
    """One line about the rows of one job and part, each given with its differing digests."""
    row, _ = job[0]
    differing = {digest for _, other in job for digest in other}
    words = " and ".join(OTHER[digest] for digest in OTHER if digest in differing)
    count = "this row was" if len(job) == 1 else f"this row and {len(job) - 1} more were"
    return (
        f"{row.where}: {_job(row)}: {count} made with {words} than this command uses; name a new "
        f"{option('output')}, or remove these rows"
    )
