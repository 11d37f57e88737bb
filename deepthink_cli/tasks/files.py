"""Read task files: a task or a family of tasks in YAML; errors name file and line."""

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
from deepthink_cli.io.mistakes import plain, reason
from deepthink_cli.tasks.defaults import completed
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import DoesNotFit, query_of
from deepthink_cli.tasks.sources import Source, files_of, split_rows

_FAMILY = "members"
_BAD_NAME = "is not a valid name; use letters, digits, - _ . and /"
# Parts that pydantic adds to the path of an error, and that are not in the file.
_STEPS = ("str", "list[str]", "[key]")

Where = Callable[..., str]


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of one file: one, or the members of a family.

    Raises InputError with `file:line` and the reason, for every mistake.
    """
    return [task for task, _ in _read(Path(path))]


def validated(path: str | Path) -> list[Task]:
    """The tasks of a file, with their example rows checked; raises InputError like `read_tasks`."""
    tasks, problems = [], Problems()
    for task, where in _read(Path(path)):
        with problems.collected():
            example_query(task, where("example"))
            tasks.append(task)
    problems.raise_any()
    return tasks


def example_query(task: Task, where: str) -> Query:
    """A task's example, or its first training row if it has none, as a query.

    Raises InputError, with `where`, if it does not fit the task.
    """
    from_file = not task.example and bool(files_of(task))
    row = _first_row(task, where) if from_file else Row(task.example, "example")
    try:
        return query_of(task, row, any_number=True)
    except DoesNotFit as reason:
        name = f"first row {row.where}" if from_file else "example"
        raise InputError(f"{where}: {task.name}: its {name} does not fit the task: {reason}") from reason


def _first_row(task: Task, where: str) -> Row:
    try:
        row = next(split_rows(task, task.demonstrations, Source()), None)
    except InputError as error:
        raise InputError(f"{where}: {task.name}: {error.messages[0]}") from error
    if row is None:
        raise InputError(f"{where}: {task.name}: {files_of(task)[0]} has no row for demonstrations; give at least two")
    return row


def _read(path: Path) -> list[tuple[Task, Where]]:
    """Every task of a file, with a function that returns file and line of a field."""
    document = _document(path)
    content = dict(document.values)
    if _FAMILY not in content:
        return [(_checked(completed(content, path, document.where), document.where, ""), document.where)]
    members = content.pop(_FAMILY)
    if not isinstance(members, dict) or not members:
        example = "members: {first: {}, second: {}}"
        raise InputError(f"{document.where(_FAMILY)}: members: must name the family's tasks, as in: {example}")
    problems = Problems()
    tasks = []
    for member, fields in members.items():
        where = _member_places(document, member)
        with problems.collected():
            if not isinstance(fields, dict | None):
                raise InputError(
                    f"{where()}: {member}: must be a mapping of the fields that differ, as in {{shots: 3}}"
                )
            merged = completed(_member(content, str(member), fields or {}), path, where)
            tasks.append((_checked(merged, where, f"{member}: "), where))
    problems.raise_any()
    return tasks


def _document(path: Path) -> Document:
    if not path.is_file():
        raise InputError(f"{path}: no such task file; deepthink tasks lists what is built in")
    document = read_document(path)
    if not isinstance(document.values, dict):
        example = "see deepthink tasks sst2 --yaml for an example"
        raise InputError(f"{document.where()}: must be a mapping of a task's fields; {example}")
    return document


def _member_places(document: Document, member: object) -> Where:
    """A function that returns file and line of a member's field, in the member or the family."""

    def where(*keys: object) -> str:
        path = (_FAMILY, member)
        if keys and document.has(*path, keys[0]):
            return document.where(*path, *keys)
        if keys and document.has(*path, keys[-1]):  # `rows`, which is copied into the protocols
            return document.where(*path, keys[-1])
        return document.where(*(keys if keys and document.has(keys[0]) else path))

    return where


def _member(family: dict[Any, Any], member: str, fields: dict[Any, Any]) -> dict[Any, Any]:
    """The family's fields, updated with the member's; values of a wrong type are left to validation."""
    merged = {**family, **fields}
    kind = merged.pop("category", None)
    rows = merged.pop("rows", None) if isinstance(merged.get("rows"), int) else None
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
            key: {**protocol, "rows": rows} if isinstance(protocol, dict) else protocol
            for key, protocol in protocols.items()
        }
    return filled


def _filled(value: Any, member: str) -> Any:
    """The value with {member} in its strings replaced by the member's name."""
    if isinstance(value, dict):
        return {key: _filled(nested, member) for key, nested in value.items()}
    if isinstance(value, list):
        return [_filled(nested, member) for nested in value]
    return value.replace("{member}", member) if isinstance(value, str) else value


def _checked(content: dict[Any, Any], where: Where, member: str) -> Task:
    try:
        return Task.model_validate(content)
    except ValidationError as error:
        messages = [f"{where(*_place(mistake))}: {member}{_reason(mistake)}" for mistake in error.errors()]
        raise InputError(*messages) from error


def _place(error: Any) -> tuple[object, ...]:
    """The path of keys of an error; for an error of the whole task, from the field name at the start of its message."""
    if error["loc"]:
        return tuple(error["loc"])
    field = plain(error["msg"]).split(":")[0]
    return (field,) if field in Task.model_fields else ()


def _reason(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"] if part not in _STEPS)
    if error["type"] in ("extra_forbidden", "invalid_key"):
        near = difflib.get_close_matches(place, Task.model_fields, n=1)
        return f"{place}: no such field; {f'did you mean {near[0]}?' if near else 'docs/tasks.md lists them'}"
    why = _BAD_NAME if error["type"] == "string_pattern_mismatch" else reason(error)
    if error["type"] == "value_error":  # of a validator, whose message names the value
        return f"{place}: {why}" if place else why
    value = error["input"]
    shown = "" if value == "" or isinstance(value, list | dict | None) else f"{value!r:.60} "
    return f"{place}: {shown}{why}"
