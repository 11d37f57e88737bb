"""Events that workflows report while they run: a caller may show, log or ignore them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class Event:
    """Base of all events; a caller ignores events that it does not know."""


@dataclass(frozen=True)
class Detail(Event):
    """A message for users who asked for details (--verbose)."""

    text: str


@dataclass(frozen=True)
class Note(Event):
    """A message for users, hidden by --quiet."""

    text: str


@dataclass(frozen=True)
class Download(Note):
    """A note before a download for a model that a memory names; its receiver may ask the user, and raise if refused."""


@dataclass(frozen=True)
class Warn(Event):
    """A warning, which is always shown."""

    text: str


@dataclass(frozen=True)
class Progress(Event):
    """Progress of a task: `done` of `total` (None if unknown) steps; `fields` are further values by name."""

    what: str
    done: int
    total: int | None
    fields: Mapping[str, str] = field(default_factory=dict)


Tell = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event."""


def once(tell: Tell) -> Tell:
    """Tell each note or warning only once: rows are read several times, and cause the same notes."""
    told = set[Event]()

    def tell_new(event: Event) -> None:
        if isinstance(event, Note | Warn):
            if event in told:
                return
            told.add(event)
        tell(event)

    return tell_new


def telling_all(*tells: Tell) -> Tell:
    """Tell an event to several receivers, in their order."""

    def tell(event: Event) -> None:
        for each in tells:
            each(event)

    return tell
