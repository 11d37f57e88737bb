"""The description of a command in help pages: its example, its group, and its first options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

C = TypeVar("C")
PLUGINS = "Plugins"  # the group of commands without a named group


class about:
    """The description of a command in help pages; as a decorator, it is attached to a command, or a `typer.Typer`.

    `example` follows `deepthink` in the example of its page. `group`, a literal, is the heading over it in the list of
    the program's commands. `first` names the options that `--help` shows, with spaces between them; all if it is empty.
    `variables` names environment variables that the command reads, beside those of its options. `settings` are further
    arguments of `typer.Typer.command`, such as `context_settings`.
    """

    def __init__(
        self,
        example: str = "",
        *,
        group: str = PLUGINS,
        first: str = "",
        variables: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.example, self.group, self.settings = example, group, settings
        self.first, self.variables = frozenset(first.split()), tuple(variables)

    def __call__(self, command: C) -> C:
        command.about = self  # type: ignore[attr-defined]
        return command


def about_of(command: Any) -> about:
    """The description of a command."""
    return getattr(command, "about", None) or about()
