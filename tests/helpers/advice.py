"""Which options a message names that the command which prints it does not have."""

from __future__ import annotations

import re
from functools import cache

from deepthink_cli.cli.main import program

_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
_CLAUSE = re.compile(r"[;,:()]|\s(?:or|and)\s")


@cache
def _options() -> dict[str, frozenset[str]]:
    """The options of each command, and of each command of a group, by its words."""
    found = dict[str, frozenset[str]]()

    def add(words: str, command: object) -> None:
        commands = getattr(command, "commands", {})
        for name, each in commands.items():
            add(f"{words} {name}".strip(), each)
        own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}  # type: ignore[attr-defined]
        found[words] = frozenset(own | {"--help", "-h"})

    add("", program())
    return found


def not_had(message: str, arguments: list[str]) -> list[str]:
    """The options that a message names and that the command of these arguments does not have.

    An option after `deepthink COMMAND`, in the same clause or in a list that begins there, is one of that command. The
    words of `harness` are those of another program, and a warning of a variable is about whatever command reads it.
    """
    if arguments[:1] == ["harness"] or message.startswith("warning: DEEPTHINK_"):
        return []
    known, command = frozenset[str]().union(*_options().values()), _command(" ".join(arguments[:2]))
    wrong, of = [], command
    for clause in _CLAUSE.split(message):
        if named := re.search(r"deepthink ([a-z-]+(?: [a-z-]+)?)", clause):
            of = _command(named[1])
        elif not clause.lstrip().startswith("-"):
            of = command
        has = _options()[of]
        wrong += [flag for flag in _FLAG.findall(clause) if flag in known - has]
    return wrong


def _command(words: str) -> str:
    """The command that words begin with; empty for none."""
    for name in (words, words.split(" ", maxsplit=1)[0]):
        if name in _options():
            return name
    return ""
