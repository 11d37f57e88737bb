"""Read task files: a task or a family of tasks in YAML; errors name file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deepthink_cli.data.examples import Query
from deepthink_cli.data.source import Row
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.documents import Document, read_document
from deepthink_cli.io.records import plain, reason
from deepthink_cli.io.text import nearest
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import DoesNotFit, query_of
from deepthink_cli.tasks.judges import judge_of
from deepthink_cli.tasks.sources import Source, files_of, split_rows

SUFFIXES = (".yaml", ".yml")  # of task files
TRAIN, TEST, ROWS = "train", "test", "rows"
PROTOCOL = "own"
_FEWEST = 8  # the default number of demonstrations, if a label does not need more

Where = Callable[..., str]


def completed(content: dict[Any, Any], path: Path, where: Where) -> dict[Any, Any]:
    """The content of a task file that names files of rows, completed with splits and defaults.

    In the content of any other task file, the files of splits become paths beside the task file. Raises InputError,
    with `file:line`, for files that are not named correctly.
    """
    rest = {key: value for key, value in content.items() if key not in (ROWS, TRAIN, TEST)}
    if rest.keys() == content.keys():
        return _located(content, path)
    if "splits" in content or "hub" in content:
        other = "splits" if "splits" in content else "hub"
        raise InputError(f"{where(other)}: {other}: the file names its rows already; give one of the two")
    if (ROWS in content) == (TRAIN in content or TEST in content) or (TRAIN in content) != (TEST in content):
        key = next(key for key in (ROWS, TRAIN, TEST) if key in content)
        raise InputError(f"{where(key)}: {key}: give rows, one file for both, or train and test, a file for each")
    files = {key: _file(content[key], path, where(key), key) for key in (ROWS, TRAIN, TEST) if key in content}
    splits = {
        TRAIN: {**files[ROWS], "half": 1} if ROWS in files else files[TRAIN],
        TEST: {**files[ROWS], "half": 2} if ROWS in files else files[TEST],
    }
    name, labels, fields = rest.get("name", path.stem), rest.get("labels"), rest.get("fields", {})
    template: Template | None = None  # for one that validation refuses
    with suppress(InputError):
        template = Template(rest["template"]) if isinstance(rest.get("template"), str) else None
    if template is not None and isinstance(fields, dict):  # by default, a column has the name of its field
        fields = {**{name: name for name in template.text_fields}, **fields}
    defaults = {
        "name": name,
        "title": str(name),
        "answer": template.label_field if template else "label",
        "shots": max(_FEWEST, 2 * len(labels)) if isinstance(labels, list) else _FEWEST,
        "demonstrations": TRAIN,
        "folder": str(name),
        "protocols": {PROTOCOL: {"split": TEST}},
        "example": {},
        "source": f"the files that {path.name} names",
        "licence": "not stated",
    }
    return {**defaults, **rest, "fields": fields, "splits": splits}


def _file(value: Any, path: Path, where: str, key: str) -> dict[str, Any]:
    """The file of a split: a name, or `{file, format, header, quotes}`."""
    named = {"file": value} if isinstance(value, str) else value
    if not isinstance(named, dict) or not isinstance(named.get("file"), str) or not named["file"]:
        raise InputError(f"{where}: {key}: must name a file, as in {key}: data.csv")
    if unknown := named.keys() - {"file", "format", "header", "quotes"}:
        first = sorted(map(str, unknown))[0]
        raise InputError(f"{where}: {key}: no such field {first!r}; give file, format, header and quotes")
    return {**named, "file": str(path.parent / named["file"])}


def _located(content: dict[Any, Any], path: Path) -> dict[Any, Any]:
    """The content with the files of its splits relative to the current directory."""
    splits = content.get("splits")
    if not isinstance(splits, dict):
        return content
    located = {
        name: {**split, "file": str(path.parent / split["file"])}
        if isinstance(split, dict) and isinstance(split.get("file"), str)
        else split
        for name, split in splits.items()
    }
    return {**content, "splits": located}


_FAMILY = "members"
_BAD_NAME = "is not a valid name; use letters, digits, - _ . and /"
# Parts that pydantic adds to the path of an error; the file does not have them.
_STEPS = ("str", "list[str]", "[key]")


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of one file: a single task, or the members of a family.

    Raises InputError with `file:line` and the reason, for every mistake.
    """
    return [task for task, _ in _read(Path(path))]


def validated(path: str | Path) -> list[Task]:
    """The tasks of a file, with their example rows checked; raises InputError like `read_tasks`."""
    read, problems = _read(Path(path)), Problems()
    problems.each(lambda each: example_query(each[0], each[1]("example")), read)
    problems.raise_any()
    return [task for task, _ in read]


def example_query(task: Task, where: str) -> Query:
    """A task's example, or its first training row if it has none, as a query.

    Raises InputError, with `where`, for a row that does not fit the task.
    """
    row, name = Row(task.example, "example"), "example"
    if not task.example and (files := files_of(task)):
        try:
            first = next(split_rows(task, task.demonstrations, Source()), None)
        except InputError as error:
            raise InputError(f"{where}: {task.name}: {error.messages[0]}") from error
        if first is None:
            raise InputError(f"{where}: {task.name}: {files[0]} has no row for demonstrations; give at least two")
        row, name = first, f"first row {first.where}"
    try:
        return query_of(task, row, any_number=True)
    except DoesNotFit as reason:
        raise InputError(f"{where}: {task.name}: its {name} does not fit the task: {reason}") from reason


def _read(path: Path) -> list[tuple[Task, Where]]:
    """Every task of a file, with a function that returns file and line of a field."""
    if not path.is_file():
        raise InputError(f"{path}: no such task file; deepthink tasks lists what is built in")
    document = read_document(path)
    if not isinstance(document.values, dict):
        example = "see deepthink tasks sst2 --yaml for an example"
        raise InputError(f"{document.where()}: must be a mapping of a task's fields; {example}")
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


def _member_places(document: Document, member: object) -> Where:
    """A function that returns file and line of a member's field, in the member or the family."""

    def where(*keys: object) -> str:
        path = (_FAMILY, member)
        if keys and document.has(*path, keys[0]):
            return document.where(*path, *keys)
        if keys and document.has(*path, keys[-1]):  # a field of the file that is copied into protocols, such as `rows`
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
        task = Task.model_validate(content)
    except ValidationError as error:
        raise InputError(*(_mistake(each, where, member) for each in error.errors())) from error
    if task.free is not None and task.free.judge is not None:
        judge_of(task.free, f"{where('free', 'judge')}: {task.name}")
    return task


def _mistake(error: Any, where: Where, member: str) -> str:
    """The place and the reason of an error; an error of the whole task names its field at the start of the message."""
    keys, place = error["loc"], ".".join(str(part) for part in error["loc"] if part not in _STEPS)
    if not keys and (field := plain(error["msg"]).split(":")[0]) in Task.model_fields:
        keys = (field,)
    if error["type"] == "string_pattern_mismatch":
        why = f"{error['input']!r:.60} {_BAD_NAME}"
    elif error["type"] == "value_error":  # of a validator, whose message names the value
        why = reason(error)
    else:
        why = refusal(error, Task.model_fields, "docs/tasks.md")
    return f"{where(*keys)}: {member}{f'{place}: ' if place else ''}{why}"


def refusal(error: Any, known: Iterable[str], page: str) -> str:
    """Why a field of a file is refused, with its value; for an unknown field, the `known` one that is most like it."""
    if error["type"] in ("extra_forbidden", "invalid_key"):
        near = nearest(str(error["loc"][-1]), known)
        return f"no such field; {f'{page} lists them' if near is None else f'did you mean {near}?'}"
    value = error["input"]
    shown = "" if value == "" or isinstance(value, list | tuple | dict | None) else f"{value!r:.60} "
    return f"{shown}{reason(error)}"
