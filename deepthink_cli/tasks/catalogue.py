"""The catalogue: every task by name, and the groups that stand for several."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deepthink_cli.errors import InputError, Problems
from deepthink_cli.origin import canonical_json
from deepthink_cli.tasks.format import Task

FOLDER = Path(__file__).parent
PROTOCOLS = ("paper", "official")
_FAMILY = "members"


@cache
def built_in() -> dict[str, Task]:
    """Every task of the catalogue by name, in the order of the files and of their members."""
    tasks = {task.name: task for path in _files() for task in read_tasks(path)}
    return dict(sorted(tasks.items(), key=lambda item: _place(item[1])))


def groups() -> dict[str, list[str]]:
    """The names of the groups with the names of their tasks: `classic`, `mmlu`, `mmlu/stem`, ..."""
    found: dict[str, list[str]] = {}
    for task in built_in().values():
        for group in task.groups:
            found.setdefault(group, []).append(task.name)
    return found


def find_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks that names, groups and task files stand for, each once, in order.

    Raises InputError with every name that is none of them, with the nearest ones.
    """
    problems = Problems()
    found: dict[str, Task] = {}
    for name in names:
        with problems.collected():
            for task in _named(name):
                found.setdefault(task.name, task)
    problems.raise_any()
    return list(found.values())


def find_task(name: str) -> Task:
    """The one task of this name; raises InputError for a group of several."""
    tasks = find_tasks([name])
    if len(tasks) > 1:
        raise InputError(
            f"--task {name}: a group of {len(tasks)} tasks; name one, as in {tasks[0].name}, or use deepthink run"
        )
    return tasks[0]


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of one file: one, or the members of a family.

    Raises InputError that names the file, the place and the reason.
    """
    content = _content(Path(path))
    members = content.pop(_FAMILY, None)
    if members is None:
        return [_checked(content, str(path))]
    if not isinstance(members, dict) or not members:
        raise InputError(
            f"{path}: members: must name the family's tasks, as in: members: {{first: {{}}, second: {{}}}}"
        )
    problems = Problems()
    tasks = []
    for member, own in members.items():
        with problems.collected():
            tasks.append(_checked(_member(content, str(member), own or {}), f"{path}: {member}"))
    problems.raise_any()
    return tasks


def digest(task: Task) -> str:
    """SHA-256 of everything in a task's definition that decides its prompts and rows."""
    says = task.model_dump(exclude={"title", "source", "licence", "note", "example", "groups"})
    return hashlib.sha256(canonical_json(says).encode()).hexdigest()


def _named(name: str) -> list[Task]:
    if name.endswith((".yaml", ".yml")):
        return read_tasks(name)
    tasks = built_in()
    if name in tasks:
        return [tasks[name]]
    members = groups().get(name)
    if members:
        return [tasks[member] for member in members]
    last = {task.rsplit("/")[-1]: task for task in tasks if "-letters/" not in task}
    if name in last:
        return [tasks[last[name]]]
    near = difflib.get_close_matches(name.lower(), [*tasks, *groups(), *last], n=3)
    hint = (
        f"did you mean {' or '.join(dict.fromkeys(last.get(one, one) for one in near))}?"
        if near
        else "deepthink tasks lists them"
    )
    raise InputError(f"--task {name}: no such task; {hint}")


def _files() -> list[Path]:
    return sorted(FOLDER.glob("*.yaml"))


def _place(task: Task) -> tuple[int, int]:
    order = ["classic", "mmlu", "bbh", "mmlu-letters", "bbh-letters"]
    classic = ["sst2", "sst5", "trec", "mr", "agnews"]
    group = next((order.index(group) for group in task.groups if group in order), len(order))
    return group, classic.index(task.name) if task.name in classic else 0


def _content(path: Path) -> dict[str, Any]:
    import yaml

    if not path.is_file():
        raise InputError(f"{path}: no such task file; deepthink tasks lists what is built in")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold a task's fields; see deepthink tasks sst2 --yaml for an example")
    return content


def _member(family: dict[str, Any], member: str, own: Any) -> dict[str, Any]:
    if not isinstance(own, dict):
        raise InputError(f"{member}: must hold what this task says differently, as in {{shots: 3}}")
    merged = {**family, **own}
    kind = merged.pop("category", None)
    name = str(merged.get("name", ""))
    merged["name"] = f"{name}/{member}"
    merged["title"] = f"{merged.get('title', '')}: {member.replace('_', ' ')}"
    merged["groups"] = [*merged.get("groups", []), *([f"{name}/{kind}"] if kind else [])]
    rows = merged.pop("rows", None)
    filled: dict[str, Any] = _filled(merged, member)
    if rows is not None and isinstance(filled.get("protocols"), dict):
        filled["protocols"] = {key: {**value, "rows": rows} for key, value in filled["protocols"].items()}
    return filled


def _filled(value: Any, member: str) -> Any:
    """The value with {member} in its texts replaced by the member's name."""
    if isinstance(value, dict):
        return {key: _filled(one, member) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, member) for one in value]
    return value.replace("{member}", member) if isinstance(value, str) else value


def _checked(content: dict[str, Any], where: str) -> Task:
    try:
        return Task(**content)
    except ValidationError as error:
        raise InputError(*(f"{where}: {_reason(one)}" for one in error.errors())) from error
    except TypeError as error:
        raise InputError(f"{where}: a field's name is not text: {error}") from error


def _reason(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), Task.model_fields, n=1)
        return f"{place}: no such field; {f'did you mean {near[0]}?' if near else 'docs/tasks.md lists them'}"
    if error["type"] == "missing":
        return f"{place}: is missing"
    if error["type"] == "value_error":
        error = {**error, "msg": error["msg"].removeprefix("Value error, ")}
    return f"{place}: {error['msg']}" if place else str(error["msg"])
