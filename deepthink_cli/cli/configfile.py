"""Option values from a file, below flags and environment variables in precedence."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import TyperException

from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.documents import Document, read_document


def apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the file's values as defaults of the command that is being parsed."""
    if path is None:
        return None
    document = _read(path)
    # A file may be shared by several commands: an unknown option may belong to another one.
    commands: Any = getattr(context.find_root().command, "commands", {"": context.command})
    known = {str(parameter.name) for command in commands.values() for parameter in command.params} - {"config"}
    accepted = {str(parameter.name): parameter for parameter in context.command.params}
    problems = Problems()
    defaults: dict[str, Any] = {}
    lines: dict[str, str] = {}
    for key, value in document.values.items():
        with problems.collected():
            where, name = document.where(key), str(key).replace("-", "_")
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "see the command's --help for the names"
                raise InputError(f"{where}: unknown option {key!r}; {hint}")
            if name in lines:
                raise InputError(f"{where}: {key!r} is duplicated, first at {lines[name]}; keep one")
            lines[name] = where
            if name in accepted:
                defaults[name] = _checked(context, accepted[name], value, f"{where}: {key}")
    problems.raise_any()
    context.default_map = {**(context.default_map or {}), **defaults}
    context.with_resource(_naming_lines(context, lines))
    return path


def _read(path: Path) -> Document:
    if not os.path.isfile(path):
        raise InputError(f"--config {path}: no such file")
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise InputError(f"--config {path}: unknown format {path.suffix!r}; use .toml, .yaml or .yml")
    document = read_document(path)
    if document.values is None:
        return Document(document.path, {}, document.lines)
    if not isinstance(document.values, dict):
        raise InputError(f"{document.where()}: must hold option names with values, as in eta: 0.01")
    return document


def _checked(context: typer.Context, parameter: Any, value: Any, what: str) -> Any:
    """The value in the form that the parser accepts; raises InputError, which begins with `what`, if it is invalid."""
    if value is None or value == []:
        raise InputError(f"{what}: has no value; give one, or omit the line")
    several = isinstance(value, list)
    for item in value if several else [value]:
        if isinstance(item, list | dict):
            raise InputError(f"{what}: must be a value, or a list of values")
        if item is None or (isinstance(item, bool) and (several or not getattr(parameter, "is_flag", False))):
            word = json.dumps(item)
            raise InputError(f"{what}: {word} is not text; put yes, no, true, false and null in quotation marks")
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        value = list(map(str, value if several else [value]))
    elif several:
        words = list(map(str, value))
        value = json.dumps(words, ensure_ascii=False) if any("," in word for word in words) else ",".join(words)
    try:
        parameter.process_value(context, value)
    except TyperException as error:
        reason = f"{value} is neither true nor false" if getattr(parameter, "is_flag", False) else error.message
        raise InputError(f"{what}: {' '.join(reason.removeprefix('Value error, ').split())}") from error
    return value


@contextmanager
def _naming_lines(context: typer.Context, lines: dict[str, str]) -> Iterator[None]:
    """Begin messages about an option whose value came from the file with the file and line."""
    try:
        yield
    except InputError as error:
        places: dict[str, str] = {}
        for parameter in context.command.params:
            name = str(parameter.name)
            source = context.get_parameter_source(name)
            if name in lines and source is not None and source.name == "DEFAULT_MAP":
                places.update(dict.fromkeys((name, *parameter.opts), lines[name]))
        words = [re.split("[ :]", message, maxsplit=1)[0] for message in error.messages]
        error.messages = tuple(
            f"{places[word]}: {message}" if word in places else message
            for word, message in zip(words, error.messages, strict=True)
        )
        raise
