"""Completion in the shell: names of tasks, studies, methods and calibrations, and task files.

Other files are completed by the shell itself, which does so if nothing is offered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE, choices
from deepthink_cli.engine.registry import AUTO, ENGINES
from deepthink_cli.export import EXPORTERS
from deepthink_cli.report.registry import FORMATS
from deepthink_cli.scoring.steps.score import SCORES
from deepthink_cli.selection.registry import METHODS, without_model
from deepthink_cli.techniques.registry import samples
from deepthink_cli.updates.registry import RULES

TASK_FILES = ("*.yaml", "*.yml")


def task_names(incomplete: str) -> list[str]:
    """Built-in tasks, groups, and task files in the current directory; a group's members after its name and a slash."""
    from deepthink_cli.tasks.catalogue import built_in, groups

    names = dict.fromkeys([*built_in(), *groups()])
    shown = names if "/" in incomplete else [name for name in names if "/" not in name]
    files = [path.name for pattern in TASK_FILES for path in sorted(Path().glob(pattern))]
    return [name for name in (*shown, *files) if name.startswith(incomplete)]


def tasks_words(incomplete: str) -> list[str]:
    """The words that may follow `deepthink tasks`."""
    return [word for word in ("new", "validate") if word.startswith(incomplete)] + task_names(incomplete)


def studies(incomplete: str) -> list[str]:
    """Packaged studies, and YAML files in the current directory."""
    from deepthink_cli.experiments.study import packaged

    files = [path.name for pattern in TASK_FILES for path in sorted(Path().glob(pattern))]
    return [name for name in (*packaged(), *files) if name.startswith(incomplete)]


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A function that completes one of these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def some_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A function that completes the last name of a list separated by commas, without the names already in it."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names if name.startswith(last) and name not in before.split(",")]

    return complete


def techniques(incomplete: str) -> list[str]:
    """The techniques of `think`; a family with numbers, such as `repeat-R`, has its smallest."""
    return one_of(each.name for each in samples())(incomplete)


def several_techniques(incomplete: str) -> list[str]:
    """The techniques of a run."""
    return some_of(each.name for each in samples(in_run=True))(incomplete)


def several_techniques_of_think(incomplete: str) -> list[str]:
    """The techniques whose memory is one file."""
    return some_of(each.name for each in samples())(incomplete)


calibrations = some_of(choices())
all_calibrations = some_of((NONE, *CALIBRATIONS))


def one_calibration(incomplete: str) -> list[str]:
    """The calibrations whose bias a memory can store."""
    return one_of((NONE, *CALIBRATIONS))(incomplete)


methods = one_of(METHODS)
several_methods = some_of(METHODS)
sampling = one_of(without_model())
updates = some_of(RULES)
exporters = one_of(EXPORTERS)
formats = one_of(FORMATS)
scores = one_of(SCORES)
engines = one_of((AUTO, *ENGINES))
NAMES: dict[str, Callable[[], list[str]]] = {
    "sampling": without_model,
    "engines": lambda: [AUTO, *ENGINES],
    "exporters": lambda: list(EXPORTERS),
    "formats": lambda: list(FORMATS),
    "scores": lambda: list(SCORES),
}
