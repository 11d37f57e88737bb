"""Observers: they are told the events of a command while it works, and may write files beside its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.events import Tell
from deepthink_cli.options import Options
from deepthink_cli.registry import Registry, instance_of


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
