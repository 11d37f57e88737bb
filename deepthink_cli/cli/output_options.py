"""The observers of a command: their options, which are options of the command, and their events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from deepthink_cli.cli.command import command_line
from deepthink_cli.cli.grouped import Given
from deepthink_cli.errors import Problems
from deepthink_cli.events import OBSERVERS, Observer, Tell, telling_all
from deepthink_cli.options import Options, joined
from deepthink_cli.registry import loaded


def observed(command: str) -> type[Options]:
    """The options of a command's observers."""
    return joined("ObserverOptions", {name: each.options for name, each in _observers(command).items()})


def _observers(command: str) -> dict[str, Observer]:
    return {name: each for name, each in OBSERVERS.items() if command in each.commands}


class Watching:
    """The observers of a command that its options ask for; `given` are these options."""

    def __init__(self, command: str, options: Given[Options]) -> None:
        self.given = options.changed
        self._asked: list[tuple[Observer, dict[str, Any]]] = []
        for observer in _observers(command).values():
            own = {name: self.given[name] for name in observer.options.model_fields if name in self.given}
            if own:
                self._asked.append((observer, own))

    def check(self, read: Sequence[str | Path], runs: Collection[Path] = ()) -> None:
        """Raise InputError for wrong options; `read` and `runs` are as in `Observer`."""
        problems = Problems()
        problems.each(
            lambda asked: loaded(asked[0].check)(asked[0].options.checked(**asked[1]), read, runs), self._asked
        )
        problems.raise_any()

    def start(self, tell: Tell) -> Tell:
        """A function that tells events to all observers; their own messages go to `tell`."""
        line = command_line()
        return telling_all(
            *(loaded(observer.start)(observer.options.checked(**own), line, tell) for observer, own in self._asked)
        )
