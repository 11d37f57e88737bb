"""Observers: they are told the events of a command while it works, and may write files beside its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.errors import Problems
from deepthink_cli.events import Tell, telling_all
from deepthink_cli.options import Options, joined
from deepthink_cli.registry import Registry, instance_of, loaded


@dataclass(frozen=True)
class Observer:
    """An observer of the `commands`, if one of its `options` is given: `run` and `eval`, also in studies.

    `check` is called before anything is loaded or written, with the options, the files and folders that the command
    reads, and the folders of its runs; it raises InputError for wrong options. `start` is called when the work begins,
    with the options, the command line and the receiver of messages; it gives the receiver of all events: of
    `experiments/executors/base.py`, or of `evaluation/report.py`. Both are functions, or places of functions
    (`module:function`).
    """

    commands: tuple[str, ...]
    options: type[Options]
    check: Callable[[Any, Sequence[str | Path], Collection[Path]], None] | str
    start: Callable[[Any, str, Tell], Tell] | str
    summary: str
    source: str = ""


OBSERVERS: Registry[Observer] = Registry("observers", {}, instance_of(Observer))


def observed(command: str) -> type[Options]:
    """The options of a command's observers."""
    return joined("ObserverOptions", {name: each.options for name, each in _of(command).items()})


def _of(command: str) -> dict[str, Observer]:
    return {name: each for name, each in OBSERVERS.items() if command in each.commands}


class Watching:
    """The observers of a command that its options ask for; `given` are the values of these options."""

    def __init__(self, command: str, given: Mapping[str, Any]) -> None:
        self.given = given
        self._asked: list[tuple[Observer, dict[str, Any]]] = []
        for observer in _of(command).values():
            if own := {name: given[name] for name in observer.options.model_fields if name in given}:
                self._asked.append((observer, own))

    def check(self, read: Sequence[str | Path], runs: Collection[Path] = ()) -> None:
        """Raise InputError for wrong options; `read` and `runs` are as in `Observer`."""
        problems = Problems()
        for observer, own in self._asked:
            with problems.collected():
                loaded(observer.check)(observer.options.checked(**own), read, runs)
        problems.raise_any()

    def start(self, line: str, tell: Tell) -> Tell:
        """A function that tells events to all observers of a command `line`; their own messages go to `tell`."""
        return telling_all(
            *(loaded(observer.start)(observer.options.checked(**own), line, tell) for observer, own in self._asked)
        )
