"""A run of an experiment: the model and the tasks that its options name, and what is scored of each job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.results import Part, Point
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import demonstrations_for
from deepthink_cli.tasks.sources import Source, source_of
from deepthink_cli.techniques.base import Technique, Trained


@dataclass(frozen=True, eq=False)
class Run:
    """A run of an experiment by one model: every task with every seed, technique and gate.

    `options` have one value in each axis that a run does not cross. `demonstrations` replace those drawn with seeds.
    With a `chat`, all demonstrations are turns of a conversation.
    """

    options: Experiment
    spec: ModelSpec
    tasks: tuple[Task, ...]
    source: Source
    demonstrations: DemonstrationSet | None = None
    chat: Chat | None = None


def planned(options: Experiment, spec: ModelSpec, given: DemonstrationSet | None = None) -> Run:
    """Find the tasks of a run, and read the file of demonstrations if there is one and they are not `given`.

    Raises InputError for no task, an unknown one, a data directory that does not exist, iterations beyond T, and wrong
    demonstrations.
    """
    tasks, source = tuple(run_tasks(options.tasks)), source_of_run(options)
    _ = options.scored  # refuses iterations beyond T
    if options.scoring.of_parts:
        raise InputError(
            f"scoring {options.scoring}: attends to parts of composed memories, and runs make others, too; use "
            "deepthink eval with such a memory"
        )
    if options.demos is not None and given is None:
        if len(tasks) > 1 or len(options.seeds) > 1:
            reason = f"only for one task and one seed; name one task and omit {option('seeds')}"
            raise InputError.of("demos", options.demos, reason)
        given = demonstrations_for(tasks[0], options.demos)
    chat = Chat(options.system) if options.chat else None  # raises for a wrong system message
    return Run(options, spec, tasks, source, given, chat)


def source_of_run(options: Experiment) -> Source:
    """Where the rows of a run come from; raises InputError for a data directory that does not exist."""
    return source_of(None if options.data_dir is None else Path(options.data_dir), options.models[0].offline)


def run_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of a run by their names; raises InputError if there are none, and for unknown ones."""
    if not names:
        raise InputError.of("task", None, f"no task; name one or more, as in {option('task')} classic")
    return find_tasks(names)


def points(options: Experiment, technique: Technique) -> list[Point]:
    """What is scored of a job, in the order of its rows; a trained memory has one gate and one T."""
    parts: tuple[Part, ...] = ("test", "dev") if options.choose_on else ("test",)
    if isinstance(technique, Trained):
        return list(product(parts, options.rules[:1], (1,)))
    return list(product(parts, options.rules, options.scored))


def scorings(options: Experiment, evaluated: int, members: int, scored: Iterable[Point]) -> int:
    """The number of inputs to score for these points: T = 1 once for all gates, dev sets in full.

    `evaluated` counts the test rows; each of the `members` of an ensemble scores them. Corrections use the same scores.
    """
    sizes = {"test": evaluated, "dev": options.dev_size or evaluated}
    once = {(part, iteration, iteration > 1 and gate) for part, gate, iteration in scored}
    return members * sum(sizes[part] for part, _, _ in once)


def rows_of_job(options: Experiment, technique: Technique) -> int:
    """The number of rows of a job."""
    return len(points(options, technique)) * len(options.calibrations)


def rows_of(options: Experiment) -> int:
    """The number of rows of a run."""
    jobs = len(run_tasks(options.tasks)) * len(options.seeds) * max(1, len(options.demos_by))
    return jobs * sum(rows_of_job(options, technique) for technique in options.chosen_techniques)
