"""The class of the commands: optional values, and errors that name sources of values; and the command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import typer

from deepthink_cli.cli.help import HelpCommand
from deepthink_cli.cli.sources import naming_sources

ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())  # the words of the running command line


def command_line() -> str:
    """The running command line, quoted for a shell."""
    return shlex.join(["deepthink", *ARGUMENTS.get()])


def with_values(words: Sequence[str], alone: Mapping[str, str]) -> list[str]:
    """The words of a command line, with a value after each option that may be given without a value."""
    completed = list[str]()
    for number, word in enumerate(words):
        completed.append(word)
        rest = words[number + 1 :]
        if word in alone and (not rest or rest[0].startswith("-")):
            completed.append(alone[word])
    return completed


class Command(HelpCommand):
    """A command whose errors name the source of the wrong value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command, some of whose options have an optional value."""
        return super().parse_args(ctx, with_values(args, getattr(ctx.command.callback, "alone", {})))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; `--offline` is applied to the hub's library."""
        if ctx.params.get("offline"):
            os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is first imported, which is later
        with naming_sources(ctx):
            return super().invoke(ctx)


class Program(typer.Typer):
    """An application whose commands name the sources of option values in their errors."""

    def command(self, *arguments: Any, **options: Any) -> Any:
        """Register a command, as `typer.Typer.command`."""
        return super().command(*arguments, cls=Command, **options)
