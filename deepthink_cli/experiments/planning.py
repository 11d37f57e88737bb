"""What a study takes, for each of its models: rows, inputs, time and memory; nothing is downloaded or written.

Where the model or its data are not on this machine, the definitions of the tasks say how much there is to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Tell, silent
from deepthink_cli.experiments.axes import shown
from deepthink_cli.experiments.crossing import Crossing
from deepthink_cli.experiments.estimate import estimate_runs
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.jobs import SharedRows
from deepthink_cli.experiments.plan import RunPlan, cells, planned, scorings
from deepthink_cli.experiments.prepare import PreparedRun, once, prepare_run
from deepthink_cli.experiments.speed import product_speed
from deepthink_cli.io.documents import read_document
from deepthink_cli.io.hub import NotInCache
from deepthink_cli.model.options import ModelOptions, choose_device
from deepthink_cli.model.spec import ModelSpec, parameter_count
from deepthink_cli.tasks.files import example_query
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import evaluation_set, protocol_name
from deepthink_cli.techniques.base import Trained
from deepthink_cli.techniques.together import COPIES

if TYPE_CHECKING:  # a plan is refused without torch
    import torch

_CHARACTERS = 4  # of English text in a token, about
_TRAINING = 3  # passes forward that a gradient step costs


@dataclass(frozen=True)
class Amount:
    """The rows and scored inputs of runs, and the tokens that the model reads for them.

    `longest` is the number of tokens of the longest demonstrations.
    """

    rows: int = 0
    inputs: int = 0
    tokens: float = 0.0
    longest: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return Amount(**{**sums, "longest": max(self.longest, other.longest)})


def amount_of(run: Experiment) -> Amount:
    """What a run does; raises InputError for a task whose rows must be read to be counted, and cannot."""
    plan = planned(run)
    return sum((_of_task(plan, task) for task in plan.tasks), Amount())


def _of_task(plan: RunPlan, task: Task) -> Amount:
    demonstration, scored = _lengths(task)
    jobs = len(plan.options.seeds) * max(1, len(plan.options.demos_by))
    length = (plan.shots or task.shots) * demonstration
    count, total = _rows(plan, task), Amount()
    for technique in plan.options.chosen_techniques:
        wanted = cells(plan, technique)
        inputs = scorings(plan, count, technique.members, wanted)
        readings = 1 + (plan.options.scored[-1] - 1) * len(plan.options.rules)
        passes = readings * technique.members
        if isinstance(technique, Trained):
            passes = 1 + _TRAINING * technique.steps
        total += Amount(jobs * len(wanted), jobs * inputs, jobs * (passes * length + inputs * scored), length)
    return total


def _rows(plan: RunPlan, task: Task) -> int:
    protocol = task.protocols[protocol_name(task, plan.protocol)]
    known = protocol.sample or protocol.rows
    if known is None:
        return len(evaluation_set(task, plan.protocol, plan.source, plan.options.limit))
    return min(known, plan.options.limit or known)


def _lengths(task: Task) -> tuple[float, float]:
    """The tokens of one demonstration and of one scored input with all candidates, by the task's example."""
    query = example_query(task, task.name)
    text = task.prompt.query(query.text)
    demonstration = task.prompt.demonstrations([(query.text, query.gold or query.candidates[0])])
    candidates = sum(map(len, query.candidates))
    return len(demonstration) / _CHARACTERS, (len(text) + candidates) / _CHARACTERS


TABLE = Path(__file__).parent / "models.yaml"
_BYTES = {"8bit": 1.0, "4bit": 0.5}
_MEMORY_BYTES = 4  # a memory is float32


@dataclass(frozen=True)
class Size:
    """A model's parameters, the bytes of its weight files and of its loaded weights, and of a memory per token."""

    parameters: float
    file_bytes: float
    loaded_bytes: float
    token_bytes: float

    def memory_needed(self, tokens: float) -> float:
        """Bytes for the weights and for making one memory of so many tokens; where there are more, it is faster."""
        return self.loaded_bytes + COPIES * tokens * self.token_bytes


def size_of(spec: ModelSpec) -> Size | None:
    """The size of a model that was opened; None if its architecture cannot be built without weights."""
    count = parameter_count(spec.config)
    if count is None:
        return None
    files = sum(file.stat().st_size for file in spec.local_weights())
    stored = getattr(spec.config, "dtype", None)
    per_weight = getattr(stored, "itemsize", 4)
    loaded = _loaded(count, spec.options, spec.dtype.itemsize)
    return Size(count, files or count * per_weight, loaded, spec.memory_bytes(1))


def known_size(options: ModelOptions) -> Size | None:
    """The size of a model of the paper, by its id; None for another model."""
    table = _table()
    known = table.get(options.model, table.get(f"openai-community/{options.model}"))  # gpt2 alone is an id, too
    if known is None:
        return None
    stored = known["stored"]
    loaded = _loaded(known["parameters"], options, _dtype(options, stored).itemsize)
    return Size(known["parameters"], known["parameters"] * stored, loaded, _MEMORY_BYTES * known["width"])


def _dtype(options: ModelOptions, stored: float) -> torch.dtype:
    """The dtype in which a model computes whose weights take `stored` bytes each in their files."""
    import torch

    if options.dtype != "auto":
        named: torch.dtype = getattr(torch, options.dtype)
        return named
    return torch.float32 if stored == 4 or choose_device(options.device).type == "cpu" else torch.bfloat16


def _loaded(parameters: float, options: ModelOptions, per_weight: float) -> float:
    return parameters * (per_weight if options.quantize is None else _BYTES[options.quantize])


@cache
def _table() -> dict[str, Any]:
    return dict(read_document(TABLE).values)


SPEED = 100.0  # TFLOP/s: an A100 in bfloat16 at a third of its peak
_PER_WEIGHT = 2  # operations for each parameter and token: a multiplication and an addition


@dataclass(frozen=True)
class ModelPlan:
    """What the runs of one model take.

    Of `rows`, `written` are in the folder; `inputs` and `seconds` are of the others. `basis` says what the seconds rest
    on: a timed probe, or the arithmetic at a `speed` in TFLOP/s. `exact` is False if rows and inputs were counted from
    the tasks' definitions, because of the `reason`. Bytes are None for a model of unknown size.
    """

    model: str
    runs: int
    rows: int
    written: int
    inputs: int
    seconds: float | None
    basis: Literal["probe", "computed"] | None
    exact: bool
    parameters: float | None
    file_bytes: float | None
    memory_bytes: float | None
    reason: str | None = None
    speed: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values, with its hours."""
        hours = None if self.seconds is None else round(self.seconds / 3600, 4)
        rounded = {name: round(value) if isinstance(value, float) else value for name, value in asdict(self).items()}
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {**rounded, "seconds": seconds, "hours": hours, "speed": self.speed}


def plan_study(
    crossing: Crossing, out: Path, may_load: bool = True, speed: float | None = None, tell: Tell = silent
) -> Iterator[ModelPlan]:
    """The plan of every model of a study, in its order.

    Where the model and the data are on this machine, rows are counted as a run would; with the weights and `may_load`,
    they are timed. Otherwise both are computed from the definitions of the tasks and the number of parameters, at
    `speed` TFLOP/s; by default at that of products of matrices on the model's device, in its dtype.
    """
    tell = once(tell)
    for runs in _by_model(crossing).values():
        yield _plan(runs, out, may_load, speed, tell)


def compute_plan(crossing: Crossing, out: Path) -> Iterator[ModelPlan]:
    """The plan of every model by arithmetic alone, from definitions and tables: the same on every machine."""
    for name, runs in _by_model(crossing).items():
        amount = sum(map(amount_of, runs), Amount())
        yield _computed(name, runs, amount, known_size(runs[0].models[0]), SPEED, out, None)


def _by_model(crossing: Crossing) -> dict[str, list[Experiment]]:
    by_model: dict[str, list[Experiment]] = {}
    for run in crossing.runs:
        offline = run.models[0].model_copy(update={"offline": True})
        by_model.setdefault(shown(run.models[0]), []).append(run.model_copy(update={"models": (offline,)}))
    return by_model


def _plan(runs: Sequence[Experiment], out: Path, may_load: bool, speed: float | None, tell: Tell) -> ModelPlan:
    options = runs[0].models[0]
    size, reason, prepared, what = known_size(options), None, list[PreparedRun](), "model"
    dtype = None if size is None else _dtype(options, size.file_bytes / size.parameters)
    try:
        spec = find_model(options, tell)
        size, dtype, what = size_of(spec), spec.dtype, "data"
        shared = SharedRows()
        prepared = [prepare_run(planned(run), spec, out, tell, shared) for run in runs]
        shared.clear()
    except NotInCache:
        prepared, reason = [], f"its {what} is not on this machine, and a plan downloads nothing"
    except DeepThinkError as error:
        prepared, reason = [], error.messages[0]
    name = shown(options.model_copy(update={"offline": False}))
    amount = sum(map(amount_of, runs), Amount())
    if not prepared:
        return _computed(name, runs, amount, size, speed or _measured(options, dtype), out, reason)
    estimate = estimate_runs(prepared, may_load, tell)
    rows = sum(run.rows for run in prepared)
    lengths = [len(member.token_ids) for run in prepared for job in run.jobs for member in job.members]
    seconds, used = estimate.seconds, None
    if seconds is None and size is not None:
        used = speed or _measured(options, dtype)
        seconds = _seconds(amount, size, used, estimate.rows / rows)
    return ModelPlan(
        model=name,
        runs=len(runs),
        rows=rows,
        written=rows - estimate.rows,
        inputs=estimate.inputs,
        seconds=seconds,
        basis="probe" if estimate.seconds is not None else None if seconds is None else "computed",
        exact=True,
        **_bytes(size, max(lengths, default=amount.longest)),
        reason=estimate.reason,
        speed=used,
    )


def _measured(options: ModelOptions, dtype: torch.dtype | None) -> float:
    import torch

    return product_speed(choose_device(options.device), dtype or torch.float32)


def _computed(
    name: str,
    runs: Sequence[Experiment],
    amount: Amount,
    size: Size | None,
    speed: float,
    out: Path,
    reason: str | None,
) -> ModelPlan:
    """The plan of a model that cannot be opened here, or whose data cannot be read."""
    written = sum(row.setting.model == runs[0].models[0].model for row in found_in(out))
    written = min(written, amount.rows)
    left = 1 - written / amount.rows
    seconds = _seconds(amount, size, speed, left)
    return ModelPlan(
        model=name,
        runs=len(runs),
        rows=amount.rows,
        written=written,
        inputs=round(amount.inputs * left),
        seconds=seconds,
        basis=None if seconds is None else "computed",
        exact=False,
        **_bytes(size, amount.longest),
        reason=reason,
        speed=None if seconds is None else speed,
    )


def _seconds(amount: Amount, size: Size | None, speed: float, left: float) -> float | None:
    """The time of the missing part of the rows, by the arithmetic; None for a model of unknown size."""
    return None if size is None else left * _PER_WEIGHT * size.parameters * amount.tokens / (speed * 1e12)


def _bytes(size: Size | None, tokens: float) -> dict[str, Any]:
    if size is None:
        return {"parameters": None, "file_bytes": None, "memory_bytes": None}
    return {
        "parameters": size.parameters,
        "file_bytes": size.file_bytes,
        "memory_bytes": size.memory_needed(tokens),
    }
