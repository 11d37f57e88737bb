"""Task files: from YAML to tasks, one or a family of them; every mistake has its line."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deepthink_cli.data.examples import Query
from deepthink_cli.data.rows import Row
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.documents import Document, read_document
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import DoesNotFit, item

_FAMILY = "members"
_REASONS = {
    "missing": "is missing; add it",
    "string_type": "is no text; write one in quotation marks",
    "string_too_short": "is empty; fill it",
    "string_pattern_mismatch": "is no name; use letters, digits, - _ . and /",
    "int_type": "is no whole number",
    "greater_than_equal": "is too small; write {ge} or more",
    "literal_error": "is not {expected}",
    "list_type": "is no list; write one, as in [first, second]",
    "dict_type": "is no mapping; write one, as in {{name: value}}",
    "model_type": "is no mapping; write one, as in {{name: value}}",
    "too_short": "is empty; name at least one",
}
# What pydantic adds to the way to a mistake, and no file says.
_STEPS = ("str", "list[str]", "[key]")

Where = Callable[..., str]


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of one file: one, or the members of a family.

    Raises InputError with `file:line` and the reason, for every mistake.
    """
    return [task for task, _ in _read(Path(path))]


def validated(path: str | Path) -> list[Task]:
    """The tasks of a file whose example rows fit them, too; raises InputError like `read_tasks`."""
    tasks, problems = [], Problems()
    for task, where in _read(Path(path)):
        with problems.collected():
            example_query(task, where("example"))
            tasks.append(task)
    problems.raise_any()
    return tasks


def example_query(task: Task, where: str) -> Query:
    """A task's own example as a query; raises InputError, naming `where`, if it is no row of the task."""
    try:
        return item(task, Row(task.example, "example"), any_number=True)
    except DoesNotFit as reason:
        raise InputError(f"{where}: {task.name}: its example is no row of the task: {reason}") from reason


def _read(path: Path) -> list[tuple[Task, Where]]:
    """Every task of a file, with a function that says where its fields stand."""
    document = _document(path)
    content = dict(document.values)
    if _FAMILY not in content:
        return [(_checked(content, document.where, ""), document.where)]
    members = content.pop(_FAMILY)
    if not isinstance(members, dict) or not members:
        example = "members: {first: {}, second: {}}"
        raise InputError(f"{document.where(_FAMILY)}: members: must name the family's tasks, as in: {example}")
    problems = Problems()
    tasks = []
    for member, own in members.items():
        where = _member_places(document, member)
        with problems.collected():
            if not isinstance(own, dict | None):
                raise InputError(f"{where()}: {member}: must hold what this task says differently, as in {{shots: 3}}")
            tasks.append((_checked(_member(content, str(member), own or {}), where, f"{member}: "), where))
    problems.raise_any()
    return tasks


def _document(path: Path) -> Document:
    if not path.is_file():
        raise InputError(f"{path}: no such task file; deepthink tasks lists what is built in")
    document = read_document(path)
    if not isinstance(document.values, dict):
        example = "see deepthink tasks sst2 --yaml for an example"
        raise InputError(f"{document.where()}: must hold a task's fields; {example}")
    return document


def _member_places(document: Document, member: object) -> Where:
    """Where the fields of a family's member stand: its own, or those that it has from the family."""

    def where(*keys: object) -> str:
        own = (_FAMILY, member)
        if keys and document.has(*own, keys[0]):
            return document.where(*own, *keys)
        if keys and document.has(*own, keys[-1]):  # `rows`, which is filled into the protocols
            return document.where(*own, keys[-1])
        return document.where(*(keys if keys and document.has(keys[0]) else own))

    return where


def _member(family: dict[Any, Any], member: str, own: dict[Any, Any]) -> dict[Any, Any]:
    """A member's fields; what is no text or no list is left as it is, for its check to name."""
    merged = {**family, **own}
    kind, rows = merged.pop("category", None), merged.pop("rows", None)
    name, title, groups = merged.get("name"), merged.get("title"), merged.get("groups", [])
    if isinstance(title, str):
        merged["title"] = f"{title}: {member.replace('_', ' ')}"
    if isinstance(groups, list) and kind:
        merged["groups"] = [*groups, f"{name}/{kind}"]
    if isinstance(name, str):
        merged["name"] = f"{name}/{member}"
    filled: dict[Any, Any] = _filled(merged, member)
    protocols = filled.get("protocols")
    if rows is not None and isinstance(protocols, dict):
        filled["protocols"] = {
            key: {**says, "rows": rows} if isinstance(says, dict) else says for key, says in protocols.items()
        }
    return filled


def _filled(value: Any, member: str) -> Any:
    """The value with {member} in its texts replaced by the member's name."""
    if isinstance(value, dict):
        return {key: _filled(one, member) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, member) for one in value]
    return value.replace("{member}", member) if isinstance(value, str) else value


def _checked(content: dict[Any, Any], where: Where, member: str) -> Task:
    try:
        return Task.model_validate(content)
    except ValidationError as error:
        raise InputError(*(f"{where(*_place(one))}: {member}{_reason(one)}" for one in error.errors())) from error


def _place(error: Any) -> tuple[object, ...]:
    """The keys that lead to a mistake; what is said of the whole task begins with its field's name."""
    if error["loc"]:
        return tuple(error["loc"])
    field = error["msg"].removeprefix("Value error, ").split(":")[0]
    return (field,) if field in Task.model_fields else ()


def _reason(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"] if part not in _STEPS)
    if error["type"] in ("extra_forbidden", "invalid_key"):
        near = difflib.get_close_matches(place, Task.model_fields, n=1)
        return f"{place}: no such field; {f'did you mean {near[0]}?' if near else 'docs/tasks.md lists them'}"
    if error["type"] in _REASONS:
        says = _REASONS[error["type"]].format(**error.get("ctx", {}))
        value = error["input"]
        shown = "" if value == "" or isinstance(value, list | dict | None) else f"{value!r:.60} "
        return f"{place}: {shown}{says}"
    reason = error["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}" if place else str(reason)
