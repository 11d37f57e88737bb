"""Options under the names that they had before, which are accepted with a note; `options.Flag` declares them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from deepthink_cli.cli.names import flag, variable, variables_of
from deepthink_cli.errors import InputError

NOTES = "deepthink.renamed"  # where a context holds the notes about options under their former names


def former_names(command: Any) -> Mapping[str, str]:
    """The options of a command by the names that they had before."""
    names: Mapping[str, str] = getattr(getattr(command, "callback", None), "formerly", {})
    return names


def former_flags(command: Any) -> dict[str, str]:
    """The long flags of a command by those that they were before."""
    return {_long(old): _long(new) for old, new in former_names(command).items()}


def _long(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def under_new_names(context: typer.Context, words: Sequence[str]) -> list[str]:
    """The words of a command line with the present names of options that are given under their former ones.

    Variables of the environment keep theirs. Both are noted. Raises InputError for an option under both its names.
    """
    new_names = former_names(context.command)
    flags = {_long(old): new for old, new in new_names.items()}
    end = words.index("--") if "--" in words else len(words)
    given = {word.partition("=")[0] for word in words[:end]}
    written = list(words)
    for number, word in enumerate(words[:end]):
        old, equals, value = word.partition("=")
        if old in flags:
            new, shown = _long(flags[old]), flag(flags[old])
            if given & {new, shown}:
                raise InputError(f"{old}: the former name of {shown}, which is given too; omit {old}")
            tell_renamed(context, old, shown)
            written[number] = f"{new}{equals}{value}"
    read = {name for parameter in context.command.params for name in variables_of(parameter)}
    for old, new in new_names.items():
        if os.environ.get(variable(old)) and variable(new) in read:
            if os.environ.get(variable(new)):
                raise InputError(f"{variable(old)}: the former name of {variable(new)}, which is set too; unset it")
            tell_renamed(context, variable(old), variable(new))
    return written


def tell_renamed(context: typer.Context, old: str, new: str) -> None:
    """Have it noted, once all words are parsed, that a name has changed."""
    context.meta.setdefault(NOTES, []).append(f"{old} is now called {new}")
