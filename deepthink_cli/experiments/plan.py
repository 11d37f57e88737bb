"""The plan of a run: its tasks, seeds, demonstrations, techniques, gates and corrections, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.experiments.options import RunOptions
from deepthink_cli.experiments.results import Part, Setting
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import gate_values
from deepthink_cli.updates.registry import rule_text

if TYPE_CHECKING:
    from deepthink_cli.experiments.jobs import RunJob


@dataclass(frozen=True)
class RunPlan:
    """The tasks of a run, found, and its options: every task with every seed, technique and gate.

    `demonstrations` replace those drawn with seeds. With a `chat`, all demonstrations are turns of a conversation.
    """

    tasks: tuple[Task, ...]
    options: RunOptions
    protocol: str
    source: Source
    demonstrations: DemonstrationSet | None = None
    chat: Chat | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts to score: `test`, and `dev` if T and eta are chosen."""
        return ("test", "dev") if self.options.selects_on_dev else ("test",)


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
        order_seed=plan.options.order_seed,
        **gate_values(plan.options.rules[0]),
        positions=plan.options.positions,
        iteration=1,
        demonstrations_sha256=job.sha256,
        weights_sha256=identity.weights_sha256 or None,
        chat=job.demonstrations.chat,
        pool_size=plan.options.pool_size if job.from_pool else None,
        balanced=plan.options.balance if job.from_pool else None,
        technique=job.recorded,
        score=None if plan.options.score == "sum" else plan.options.score,
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
