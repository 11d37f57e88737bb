"""What workflows tell while they run: a caller may show it, log it or ignore it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Detail:
    """Something for users who asked to know more."""

    text: str


@dataclass(frozen=True)
class Note:
    """Something for users, unless they asked for silence."""

    text: str


@dataclass(frozen=True)
class Warn:
    """Something that users must know in any case."""

    text: str


@dataclass(frozen=True)
class Progress:
    """`done` of `total` (None if that is not known) of what is being done; `fields` say more, each by its name."""

    what: str
    done: int
    total: int | None
    fields: Mapping[str, str] = field(default_factory=dict)


Event = Detail | Note | Warn | Progress
Tell = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event."""
