"""The catalogue: built-in tasks and groups of tasks, by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.text import json_sha256
from deepthink_cli.registry import Registry
from deepthink_cli.tasks.files import SUFFIXES, read_tasks
from deepthink_cli.tasks.format import Task

FOLDER = Path(__file__).parent / "definitions"


@cache
def _own() -> dict[str, Task]:
    return {task.name: task for path in sorted(FOLDER.glob("*.yaml")) for task in read_tasks(path)}


def _check(name: str, found: Any) -> Sequence[Task]:
    tasks = [found] if isinstance(found, Task) else read_tasks(found)
    if taken := {task.name for task in tasks} & _own().keys():
        raise ValueError(f"{min(taken)!r} is the name of a built-in task")
    return tasks


# The tasks of other packages; an entry point is a `Task`, or the path of a task file.
TASKS: Registry[Sequence[Task]] = Registry("tasks", {}, _check)


@cache
def built_in() -> dict[str, Task]:
    """Every task of the catalogue by name, in the order of the files and their members; tasks of packages last."""
    added = {task.name: task for tasks in TASKS.values() for task in tasks}
    return dict(sorted((_own() | added).items(), key=lambda item: _position(item[1])))


def groups() -> dict[str, list[str]]:
    """The names of the groups with the names of their tasks: `classic`, `mmlu`, `mmlu/stem`, ..."""
    members: dict[str, list[str]] = {}
    for task in built_in().values():
        for group in task.groups:
            members.setdefault(group, []).append(task.name)
    return members


def find_tasks(names: Sequence[str]) -> list[Task]:
    """Resolve names of tasks, groups and task files to tasks, in order, without duplicates.

    Raises InputError for every unknown name, with the closest known ones.
    """
    problems = Problems()
    found = problems.each(_named, names)
    problems.raise_any()
    return list({task.name: task for tasks in found for task in tasks}.values())


def find_task(name: str) -> Task:
    """The task of this name; raises InputError for a group of several."""
    tasks = find_tasks([name])
    if len(tasks) > 1:
        reason = f"a group of {len(tasks)} tasks; name one, as in {tasks[0].name}, or use deepthink run"
        raise InputError.of("task", name, reason)
    return tasks[0]


def digest(task: Task) -> str:
    """SHA-256 of the parts of a task's definition that determine its prompts and rows, without names of files."""
    fields = task.model_dump(exclude={"title", "source", "licence", "note", "example", "groups"})
    if fields["free"] is None:
        del fields["free"]
    elif fields["free"]["judge"] is None:
        del fields["free"]["judge"]
    for split in fields["splits"].values():
        del split["file"], split["format"]
        if split["half"] is None:
            del split["half"]
    return json_sha256(fields)


def _named(name: str) -> list[Task]:
    if name.endswith(SUFFIXES):
        return read_tasks(name)
    tasks = built_in()
    if name in tasks:
        return [tasks[name]]
    members = groups().get(name)
    if members:
        return [tasks[member] for member in members]
    by_member = {task.rsplit("/")[-1]: task for task in tasks if "-letters/" not in task}
    if name in by_member:
        return [tasks[by_member[name]]]
    near = difflib.get_close_matches(name.lower(), [*tasks, *groups(), *by_member], n=3)
    names = " or ".join(dict.fromkeys(by_member.get(match, match) for match in near))
    hint = f"did you mean {names}?" if near else "deepthink tasks lists them"
    raise InputError.of("task", name, f"no such task; {hint}")


def _position(task: Task) -> tuple[int, int]:
    """The position of a task in the list: by group, the classic tasks in the paper's order."""
    order = ["classic", "mmlu", "bbh", "mmlu-letters", "bbh-letters"]
    classic = ["sst2", "sst5", "trec", "mr", "agnews"]
    group = next((order.index(group) for group in task.groups if group in order), len(order))
    return group, classic.index(task.name) if task.name in classic else 0
