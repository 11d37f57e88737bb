"""The description of a command in help pages: its example, its group, and its first options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

C = TypeVar("C")
PLUGINS = "Plugins"  # the group of commands without a named group


@dataclass(frozen=True)
class About:
    """The description of a command in help pages.

    `example` follows `deepthink` in the example of its page. `group` is the heading over it in the list of a program's
    commands. `first` names the options that `--help` shows, all if it
    is empty. `variables` names environment variables that the command reads, beside those of its options. `settings`
    are further arguments of `typer.Typer.command`, such as `context_settings`.
    """

    example: str = ""
    group: str = PLUGINS
    first: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def about(
    example: str = "", *, group: str = PLUGINS, first: str = "", variables: Sequence[str] = (), **settings: Any
) -> Callable[[C], C]:
    """Attach an `About` to a command, or to an application of typer; `first` are names with spaces between them."""

    def said(command: C) -> C:
        command.about = About(example, group, frozenset(first.split()), tuple(variables), settings)  # type: ignore[attr-defined]
        return command

    return said


def about_of(command: Any) -> About:
    """The description of a command."""
    found = getattr(command, "about", None)
    return found if isinstance(found, About) else About()
