"""The source of an option's value, for messages, and option values from a file."""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import TyperException

from deepthink_cli.cli.about import about_of
from deepthink_cli.cli.names import PREFIX, option_name
from deepthink_cli.errors import DeepThinkError, InputError, Problem, Problems
from deepthink_cli.io.documents import Document, check_allows_no_code, read_document
from deepthink_cli.io.records import plain

LINES = "deepthink.config"  # where a context holds the places of the values of its config file


@contextmanager
def naming_sources(context: typer.Context) -> Iterator[None]:
    """Begin errors about an option with `DEEPTHINK_ETA=7` or `options.toml:3: eta 7` if its value came from there."""
    try:
        yield
    except DeepThinkError as error:
        sources, problems = _sources(context), list[Problem]()
        for each in error.problems:
            source = sources.get(option_name(each.field or ""))
            if source is not None:
                place = source.rstrip(" =") if each.value is None else f"{source}{each.value}"
                each = Problem(each.reason, place=place)
            problems.append(each)
        error.problems = tuple(problems)
        raise


def usage_message(error: TyperException) -> str:
    """One line about a mistake that the parser found, with the source of the value instead of a flag nobody typed."""
    if possible := getattr(error, "possibilities", None):
        return f"{plain(error.message)}. Did you mean {' or '.join(possible)}?"
    parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if parameter is None or context is None:
        return plain(error.format_message())
    reason, name = plain(error.message), parameter.envvar
    value = os.environ.get(name or "", "")
    if came_from(context, str(parameter.name)) == "ENVIRONMENT":
        return f"{name}: {boolean_reason(value) if getattr(parameter, 'is_flag', False) else reason}"
    return plain(error.format_message())


def boolean_reason(value: object) -> str:
    """The reason why a flag cannot have a value."""
    return f"{value} is neither true nor false"


def unread_variables(program: Callable[[], Any]) -> list[str]:
    """A line for each variable of the environment that begins with `PREFIX` and that no command reads."""
    named = [name for name in os.environ if name.startswith(PREFIX)]
    if not named:
        return []
    commands = list(commands_of(program()))
    known = {str(parameter.envvar) for each in commands for parameter in each.params}
    known.update(name for each in commands for name in about_of(each.callback).variables)
    lines = []
    for name in (each for each in named if each not in known):
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
        way = f"did you mean {close[0]}?" if close else "unset it, or see docs/concepts.md for the names"
        lines.append(f"{name}: no option reads it; {way}")
    return lines


def commands_of(program: Any) -> Iterator[Any]:
    """Every command of a program and of its groups; a program of one command is that command."""
    groups = getattr(program, "commands", None)
    if groups is None:
        yield program
    else:
        for each in groups.values():
            yield from commands_of(each)


def _sources(context: typer.Context) -> dict[str, str]:
    """The text in place of the flag of an option, by its field."""
    lines: Mapping[str, str] = context.meta.get(LINES, {})
    sources: dict[str, str] = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        field = parameter.opts[0].lstrip("-").replace("-", "_") if parameter.opts[0].startswith("--") else name
        source = came_from(context, name)
        if source == "DEFAULT_MAP" and name in lines:
            sources[field] = f"{lines[name]} "
        elif source == "ENVIRONMENT":
            sources[field] = f"{parameter.envvar}="
    return sources


def came_from(context: typer.Context, name: str) -> str | None:
    """The source of an option's value: COMMANDLINE, ENVIRONMENT, DEFAULT_MAP (a config file) or DEFAULT."""
    source = context.get_parameter_source(name)
    return None if source is None else source.name


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether the command line has an option."""
    return came_from(context, name) == "COMMANDLINE"


def apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the file's values as defaults of the command that is being parsed."""
    if path is None:
        return None
    problems, defaults, lines, places = Problems(), dict[str, Any](), dict[str, str](), dict[str, str]()
    with naming_sources(context):
        document = _read(path)
        check_allows_no_code(document.values, document.where)
        accepted = {str(parameter.name): parameter for parameter in context.command.params}
        del accepted["config"]  # a file names no other file
        for key, value in document.values.items():
            with problems.collected():  # a file may be shared by several commands, and have options of others
                where, name = document.where(key), str(key).replace("-", "_")
                if name not in accepted and name not in (known := _names_of_all(context)):
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
    return path


def _names_of_all(context: typer.Context) -> set[str]:
    """The options of every command, which imports all of them."""
    root = context.find_root()
    commands = commands_of(root.command if root.obj is None else root.obj())
    return {str(parameter.name) for command in commands for parameter in command.params} - {"config"}


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


def csv_line(words: Sequence[str]) -> str:
    """Several words as one value of an option, as of --labels; quoted if the value would name a file."""
    text = io.StringIO()
    quoted = words[0].startswith("@")
    csv.writer(text, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="").writerow(words)
    return text.getvalue()


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
        value = csv_line(list(map(str, value)))
    try:
        parameter.process_value(context, value)
    except TyperException as error:
        reason = boolean_reason(value) if getattr(parameter, "is_flag", False) else plain(error.message)
        raise InputError(f"{what}: {reason}") from error
    return value
