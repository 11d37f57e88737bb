"""Option values from a file, below flags and environment variables in precedence."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import typer

from deepthink_cli.errors import InputError


def apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's values the defaults of the command that is being parsed."""
    if path is None:
        return None
    values = _read(path)
    # A file may serve several commands: what this one does not take, another may.
    commands: Any = getattr(context.find_root().command, "commands", {"": context.command})
    known = {str(parameter.name) for command in commands.values() for parameter in command.params}
    several = {parameter.name for parameter in context.command.params
               if getattr(parameter, "multiple", False) or parameter.nargs == -1}  # fmt: skip
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in known or name == "config":
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "see the command's --help for the names"
            raise InputError(f"--config {path}: unknown option {key!r}; {hint}")
        if name in several:
            defaults[name] = list(map(str, value if isinstance(value, list) else [value]))
        else:
            defaults[name] = _listed(value) if isinstance(value, list) else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _listed(values: list[Any]) -> str:
    if any(isinstance(value, bool) for value in values):
        raise InputError(f"--config: {values}: write yes, no, true and false in quotation marks where they are words")
    words = list(map(str, values))
    return json.dumps(words, ensure_ascii=False) if any("," in word for word in words) else ",".join(words)


def _read(path: Path) -> dict[str, Any]:
    if not os.path.isfile(path):
        raise InputError(f"--config {path}: no such file")
    try:
        if path.suffix == ".toml":
            values: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            try:
                values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
            except (yaml.YAMLError, RecursionError) as error:
                raise ValueError(" ".join(str(error).split())) from error
        else:
            raise InputError(f"--config {path}: unknown format {path.suffix!r}; use .toml, .yaml or .yml")
    except (OSError, ValueError) as error:
        raise InputError(f"--config {path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"--config {path}: must hold option names with values")
    return values
