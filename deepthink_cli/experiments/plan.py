"""The plan of a run: its tasks, seeds, demonstrations, techniques, gates and corrections, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.experiments.results import Part, Setting
from deepthink_cli.method import DEEP_THINKING, Positions
from deepthink_cli.options import ScoreName
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.selection.registry import Sampling
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.techniques.context_tuning import ContextTuning
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import gate_values
from deepthink_cli.updates.registry import rule_text

if TYPE_CHECKING:
    from deepthink_cli.experiments.jobs import RunJob


@dataclass(frozen=True)
class RunPlan:
    """Every task with every seed and gate; each has a row for every scored iteration, and as many for a dev set.

    All `iterations` readings are made; those in `scored` have rows. `demonstrations` replace those drawn with seeds;
    `dev_size` counts dev rows (None: as many as test rows). With a `chat`, all demonstrations are turns of a
    conversation. If there are methods in `demos_by`, each chooses the demonstrations from a pool of at most `pool_size`
    training rows. Each of the `techniques` makes memories of its own, one of them by the steps of `tuning`; each of the
    `calibrations` corrects the scores of all of them; `score` is what is compared of log-probabilities. With
    `run_code`, programs that are the answers of a task are run; with `unsafe`, also as root without confinement.
    """

    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    iterations: int
    scored: tuple[int, ...]
    gates: tuple[UpdateRule, ...]
    positions: Positions
    protocol: str
    source: Source
    limit: int | None = None
    shots: int | None = None
    sampling: Sampling | None = None
    order_seed: int | None = None
    demonstrations: DemonstrationSet | None = None
    select_dev: bool = False
    dev_size: int | None = None
    chat: Chat | None = None
    demos_by: tuple[str, ...] = ()
    pool_size: int | None = None
    balanced: bool = False
    techniques: tuple[str, ...] = (DEEP_THINKING,)
    tuning: ContextTuning = field(default_factory=ContextTuning)
    calibrations: tuple[str, ...] = (NONE,)
    score: ScoreName = "sum"
    run_code: bool = False
    unsafe: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts to score: `test`, and `dev` if T and eta are chosen."""
        return ("test", "dev") if self.select_dev else ("test",)


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
        limit=plan.limit,
        sampling=job.sampling,
        shots=len(job.drawn.demonstrations.examples),
        seed=job.seed,
        order_seed=plan.order_seed,
        **gate_values(plan.gates[0]),
        positions=plan.positions,
        iteration=1,
        demonstrations_sha256=job.sha256,
        weights_sha256=identity.weights_sha256 or None,
        chat=job.demonstrations.chat,
        pool_size=plan.pool_size if job.from_pool else None,
        balanced=plan.balanced if job.from_pool else None,
        technique=job.technique,
        score=None if plan.score == "sum" else plan.score,
    )
    dev_split, dev_size = job.task.dev or job.task.demonstrations, plan.dev_size or len(job.evaluated)
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
        for cell in cells(plan, job.tuning is not None)
    ]


@dataclass(frozen=True)
class Cell:
    """What distinguishes the rows of one job."""

    part: Part
    gate: UpdateRule
    iteration: int
    calibration: str | None


def cells(plan: RunPlan, is_tuned: bool) -> list[Cell]:
    """The cells of a job, in the order in which their rows are written; a tuned memory has one gate and one T."""
    return [
        Cell(part, gate, iteration, None if calibration == NONE else calibration)
        for part in plan.parts
        for gate in plan.gates[: 1 if is_tuned else None]
        for iteration in ((1,) if is_tuned else plan.scored)
        for calibration in plan.calibrations
    ]


def scorings(plan: RunPlan, evaluated: int, members: int, wanted: Iterable[Setting | Cell]) -> int:
    """The number of inputs to score for the wanted rows: T = 1 once for all gates, dev sets in full.

    `evaluated` counts the test rows; each of the `members` of an ensemble scores them. Corrections use the same scores.
    """
    sizes = {"test": evaluated, "dev": plan.dev_size or evaluated}
    scored = {(each.part, each.iteration, each.iteration > 1 and each.gate) for each in wanted}
    return members * sum(sizes[part] for part, _, _ in scored)
