"""Option values from a file, below flags and environment variables in precedence."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import TyperException

from deepthink_cli.cli.sources import LINES, boolean_reason, commands_of, naming_sources
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.documents import Document, read_document
from deepthink_cli.io.mistakes import plain
from deepthink_cli.io.permissions import check_allows_no_code


def apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the file's values as defaults of the command that is being parsed."""
    if path is not None:
        with naming_sources(context):
            _apply(context, _read(path))
    return path


def _apply(context: typer.Context, document: Document) -> None:
    check_allows_no_code(document.values, document.where)
    # A file may be shared by several commands: an unknown option may belong to another one.
    commands = commands_of(context.find_root().command)
    known = {str(parameter.name) for command in commands for parameter in command.params} - {"config"}
    accepted = {str(parameter.name): parameter for parameter in context.command.params}
    problems = Problems()
    defaults: dict[str, Any] = {}
    lines: dict[str, str] = {}
    places: dict[str, str] = {}
    for key, value in document.values.items():
        with problems.collected():
            where, name = document.where(key), str(key).replace("-", "_")
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "see the command's --help for the names"
                raise InputError(f"{where}: unknown option {key!r}; {hint}")
            if name in lines:
                raise InputError(f"{where}: {key!r} is duplicated, first at {lines[name]}; keep one")
            lines[name], places[name] = where, f"{where}: {key}"
            if name in accepted:
                defaults[name] = _checked(context, accepted[name], value, f"{where}: {key}")
    problems.raise_any()
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[LINES] = places


def _read(path: Path) -> Document:
    if not os.path.isfile(path):
        raise InputError.of("config", path, "no such file")
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise InputError.of("config", path, f"unknown format {path.suffix!r}; use .toml, .yaml or .yml")
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
        reason = boolean_reason(value) if getattr(parameter, "is_flag", False) else plain(error.message)
        raise InputError(f"{what}: {reason}") from error
    return value
