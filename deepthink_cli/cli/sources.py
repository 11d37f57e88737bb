"""Where the value of an option came from, and messages that name it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.exceptions import TyperException

from deepthink_cli.cli.help import HelpCommand
from deepthink_cli.errors import DeepThinkError, Problem
from deepthink_cli.io.mistakes import plain


def with_ray_address(words: Sequence[str]) -> list[str]:
    """The words of a command line with `local` after a `--ray` that has no address."""
    completed = list[str]()
    for number, word in enumerate(words):
        completed.append(word)
        rest = words[number + 1 :]
        if word == "--ray" and (not rest or rest[0].startswith("-")):
            completed.append("local")
    return completed


PREFIX = "DEEPTHINK_"
LINES = "deepthink.config"  # where a context holds the places of the values of its config file


class Command(HelpCommand):
    """A command whose errors name the source of the value that they are about."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command, some of whose options have an optional value."""
        return super().parse_args(ctx, with_ray_address(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; `--offline` is applied to the hub's library."""
        if ctx.params.get("offline"):
            os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is first imported, which is later
        with naming_sources(ctx):
            return super().invoke(ctx)


@contextmanager
def naming_sources(context: typer.Context) -> Iterator[None]:
    """Begin errors about an option with `DEEPTHINK_ETA=7` or `options.toml:3: eta 7` if its value came from there."""
    try:
        yield
    except DeepThinkError as error:
        sources = _sources(context)
        error.problems = tuple(_with_source(problem, sources) for problem in error.problems)
        raise


def usage_message(error: TyperException) -> str:
    """One line about a mistake that the parser found, with the source of the value instead of a flag nobody typed."""
    parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if parameter is None or context is None:
        return plain(error.format_message())
    reason, value = plain(error.message), os.environ.get(str(parameter.envvar), "")
    if _is_from(context, parameter, "ENVIRONMENT"):
        return f"{parameter.envvar}: {boolean_reason(value) if getattr(parameter, 'is_flag', False) else reason}"
    return plain(error.format_message())


def boolean_reason(value: object) -> str:
    """Why a value cannot be that of a flag."""
    return f"{value} is neither true nor false"


def unread_variables(program: Callable[[], Any]) -> list[str]:
    """A line for each variable of the environment that begins with `PREFIX` and that no command reads."""
    named = [name for name in os.environ if name.startswith(PREFIX)]
    if not named:
        return []
    parameters = [parameter for each in commands_of(program()) for parameter in each.params]
    known = {str(parameter.envvar) for parameter in parameters if parameter.envvar}
    flags = {str(parameter.name): parameter.opts[0] for parameter in parameters if not parameter.envvar}
    return [f"{name}: no option reads it; {_advice(name, known, flags)}" for name in named if name not in known]


def commands_of(program: Any) -> Iterator[Any]:
    """Every command of a program, also those of its groups; a program of one command is that command."""
    groups = getattr(program, "commands", None)
    if groups is None:
        yield program
    else:
        for each in groups.values():
            yield from commands_of(each)


def _advice(name: str, known: set[str], flags: Mapping[str, str]) -> str:
    word = name.removeprefix(PREFIX)
    if flag := flags.get(word.lower()):
        return f"{flag} has no variable, give it on the command line" if flag.startswith("-") else "unset it"
    close = difflib.get_close_matches(word, [each.removeprefix(PREFIX) for each in known], n=1)
    return f"did you mean {PREFIX}{close[0]}?" if close else "unset it, or see docs/concepts.md for the names"


def _sources(context: typer.Context) -> dict[str, str]:
    """What to write in place of the flag of an option, by its field."""
    lines: Mapping[str, str] = context.meta.get(LINES, {})
    sources: dict[str, str] = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        field = parameter.opts[0].lstrip("-").replace("-", "_") if parameter.opts[0].startswith("--") else name
        if _is_from(context, parameter, "DEFAULT_MAP") and name in lines:
            sources[field] = f"{lines[name]} "
        elif _is_from(context, parameter, "ENVIRONMENT"):
            sources[field] = f"{parameter.envvar}="
    return sources


def _is_from(context: typer.Context, parameter: Any, source: str) -> bool:
    actual = context.get_parameter_source(str(parameter.name))
    return actual is not None and actual.name == source


def _with_source(problem: Problem, sources: Mapping[str, str]) -> Problem:
    """The problem with the source of the value in place of the option, if the value came from there."""
    source = sources.get(problem.field or "")
    if source is None:
        return problem
    return Problem(problem.reason, place=source.rstrip(" =") if problem.value is None else f"{source}{problem.value}")
