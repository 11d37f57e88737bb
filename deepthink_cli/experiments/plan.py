"""The plan of a run: its tasks, seeds, demonstrations, techniques, gates and corrections, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.results import Part, Setting
from deepthink_cli.method import Positions
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import demonstrations_for
from deepthink_cli.tasks.sources import Source, source_of
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import gate_values
from deepthink_cli.updates.registry import rule_text

if TYPE_CHECKING:
    from deepthink_cli.experiments.jobs import RunJob


@dataclass(frozen=True)
class RunPlan:
    """The tasks of a run, found, and its options: every task with every seed, technique and gate.

    `options` have one value in each axis that a run does not cross. `demonstrations` replace those drawn with seeds.
    With a `chat`, all demonstrations are turns of a conversation.
    """

    tasks: tuple[Task, ...]
    options: Experiment
    source: Source
    demonstrations: DemonstrationSet | None = None
    chat: Chat | None = None

    @property
    def protocol(self) -> str:
        """The protocol whose rows are evaluated."""
        return self.options.protocols[0]

    @property
    def shots(self) -> int | None:
        """The number of demonstrations; None for the task's own."""
        return self.options.shots[0]

    @property
    def order_seed(self) -> int | None:
        """The seed of the order of demonstrations; None for that in which they are drawn."""
        return self.options.orders[0]

    @property
    def sampling(self) -> str | None:
        """How demonstrations are drawn; None for the task's own way."""
        return self.options.sampling[0]

    @property
    def positions(self) -> Positions:
        """The positions of readings after the first."""
        return self.options.positions[0]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts to score: `test`, and `dev` if T and eta are chosen."""
        return ("test", "dev") if self.options.selects_on_dev else ("test",)


def planned(options: Experiment, given: DemonstrationSet | None = None) -> RunPlan:
    """Find the tasks of a run, and read the file of demonstrations if there is one and they are not `given`.

    Raises InputError for no task, an unknown one, a data directory that does not exist, iterations beyond T, and wrong
    demonstrations.
    """
    tasks = run_tasks(options.tasks)
    source = source_of(None if options.data_dir is None else Path(options.data_dir), options.models[0].offline)
    _ = options.scored  # refuses iterations beyond T
    return RunPlan(tuple(tasks), options, source, given or _given(options, tasks), options.conversation)


def run_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of a run by their names; raises InputError if there are none, and for unknown ones."""
    if not names:
        raise InputError.of("task", None, f"no task; name one or more, as in {option('task')} classic")
    return find_tasks(names)


def _given(options: Experiment, tasks: Sequence[Task]) -> DemonstrationSet | None:
    """The demonstrations of the file; raises InputError for several tasks or seeds."""
    if options.demos is None:
        return None
    if len(tasks) > 1 or len(options.seeds) > 1:
        raise InputError.of(
            "demos", options.demos, f"only for one task and one seed; name one task and omit {option('seeds')}"
        )
    return demonstrations_for(tasks[0], options.demos)


def settings(plan: RunPlan, job: RunJob, identity: ModelIdentity) -> list[Setting]:
    """The settings of a job's rows, in the order they are written."""
    base = Setting(
        model=identity.id if identity.adapter is None else f"{identity.id} with {identity.adapter}",
        model_sha256=identity.contents_sha256,
        dtype=identity.dtype,
        quantize=identity.quantize,
        task=job.task.name,
        task_sha256=job.task_sha256,
        protocol=job.evaluated.protocol,
        part="test",
        split=job.evaluated.split,
        limit=plan.options.limit,
        sampling=job.sampling,
        shots=len(job.drawn.demonstrations.examples),
        seed=job.seed,
        order_seed=plan.order_seed,
        **gate_values(plan.options.rules[0]),
        positions=plan.positions,
        iteration=1,
        demonstrations_sha256=job.sha256,
        weights_sha256=identity.weights_sha256 or None,
        chat=job.demonstrations.chat,
        tokens=None if plan.options.tokens == "prompt" else plan.options.tokens,
        pool_size=plan.options.pool_size if job.from_pool else None,
        balanced=plan.options.balance if job.from_pool else None,
        technique=job.recorded,
        scoring=str(plan.options.scored_by) or None,
    )
    dev_split, dev_size = job.task.dev or job.task.demonstrations, plan.options.dev_size or len(job.evaluated)
    of_part = {"test": base, "dev": replace(base, part="dev", split=dev_split, limit=dev_size)}
    return [
        replace(
            of_part[cell.part],
            **gate_values(cell.gate),
            update=rule_text(cell.gate),
            iteration=cell.iteration,
            rows_sha256=job.rows_sha256[cell.part],
            calibration=cell.calibration,
        ).applied
        for cell in cells(plan, job.technique)
    ]


@dataclass(frozen=True)
class Cell:
    """What distinguishes the rows of one job."""

    part: Part
    gate: UpdateRule
    iteration: int
    calibration: str | None


def cells(plan: RunPlan, technique: Technique) -> list[Cell]:
    """The cells of a job, in the order in which their rows are written; a trained memory has one gate and one T."""
    is_trained = isinstance(technique, Trained)
    return [
        Cell(part, gate, iteration, None if calibration == NONE else calibration)
        for part in plan.parts
        for gate in plan.options.rules[: 1 if is_trained else None]
        for iteration in ((1,) if is_trained else plan.options.scored)
        for calibration in plan.options.calibrations
    ]


def scorings(plan: RunPlan, evaluated: int, members: int, wanted: Iterable[Setting | Cell]) -> int:
    """The number of inputs to score for the wanted rows: T = 1 once for all gates, dev sets in full.

    `evaluated` counts the test rows; each of the `members` of an ensemble scores them. Corrections use the same scores.
    """
    sizes = {"test": evaluated, "dev": plan.options.dev_size or evaluated}
    scored = {(each.part, each.iteration, each.iteration > 1 and each.gate) for each in wanted}
    return members * sum(sizes[part] for part, _, _ in scored)


def rows_of(plan: RunPlan) -> int:
    """The number of rows of a run."""
    jobs = len(plan.tasks) * len(plan.options.seeds) * max(1, len(plan.options.demos_by))
    return jobs * sum(len(cells(plan, technique)) for technique in plan.options.chosen_techniques)
