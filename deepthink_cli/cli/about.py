"""What a command says of itself: its example and group in help pages, and the options that come first there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

C = TypeVar("C")
PLUGINS = "Plugins"  # the group of commands that name none


@dataclass(frozen=True)
class About:
    """What help pages say of a command.

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
    """Say of a command, or an application of typer, what `About` holds; `first` are names with spaces between them."""

    def said(command: C) -> C:
        command.about = About(example, group, frozenset(first.split()), tuple(variables), settings)  # type: ignore[attr-defined]
        return command

    return said


def about_of(command: Any) -> About:
    """What a command says of itself."""
    found = getattr(command, "about", None)
    return found if isinstance(found, About) else About()
