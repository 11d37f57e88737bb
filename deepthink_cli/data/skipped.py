"""Rows that have no prediction, and why."""

from __future__ import annotations

from dataclasses import dataclass

UNREADABLE = "cannot be read"


@dataclass(frozen=True)
class Skipped:
    """A row without a prediction: the messages that say why, and the `reason` that such rows share."""

    messages: tuple[str, ...]
    reason: str = UNREADABLE

    @property
    def error(self) -> str:
        """The messages in one line."""
        return "; ".join(self.messages)
