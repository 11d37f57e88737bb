"""What a task file may omit if it names the files of its rows (`rows`, or `train` and `test`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

TRAIN, TEST, ROWS = "train", "test", "rows"
PROTOCOL = "own"
_FEWEST = 8  # demonstrations

Where = Callable[..., str]


def completed(content: dict[Any, Any], path: Path, where: Where) -> dict[Any, Any]:
    """The content of a task file with the splits of its own files and defaults for what it omits.

    Other task files are returned with the files of their splits found beside the task file. Raises InputError, with
    `file:line`, for files that are not named as they must be.
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
    return {**_defaults(rest, path), **rest, "fields": _fields(rest), "splits": splits}


def _defaults(content: dict[Any, Any], path: Path) -> dict[str, Any]:
    name, labels, template = content.get("name", path.stem), content.get("labels"), _template(content)
    return {
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


def _fields(content: dict[Any, Any]) -> Any:
    """The columns of the template's fields, which have the same names unless the file says otherwise."""
    fields, template = content.get("fields", {}), _template(content)
    if template is None or not isinstance(fields, dict):
        return fields
    return {**{name: name for name in template.text_fields}, **fields}


def _template(content: dict[Any, Any]) -> Template | None:
    """The template, or None for one that validation refuses."""
    try:
        return Template(content["template"]) if isinstance(content.get("template"), str) else None
    except InputError:
        return None


def _file(value: Any, path: Path, where: str, key: str) -> dict[str, Any]:
    """The file of a split: a name, or `{file, format}`."""
    named = {"file": value} if isinstance(value, str) else value
    if not isinstance(named, dict) or not isinstance(named.get("file"), str) or not named["file"]:
        raise InputError(f"{where}: {key}: must name a file, as in {key}: data.csv")
    if unknown := named.keys() - {"file", "format"}:
        raise InputError(f"{where}: {key}: no such field {sorted(map(str, unknown))[0]!r}; give file and format")
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
