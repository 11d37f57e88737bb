"""The plan of a run (tasks, seeds, gates), its jobs and the settings of its rows, before a model is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.method import Positions
from deepthink_cli.model.fitting import count_tokens, most_held
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import ModelIdentity, TokenizedDemonstrations
from deepthink_cli.runs.results import Part, Setting
from deepthink_cli.selection.registry import Sampling
from deepthink_cli.tasks.catalogue import digest
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import (
    Drawn,
    EvaluationSet,
    dev_set,
    draw_demonstrations,
    evaluation_set,
    row_digest,
    rows_digest,
)
from deepthink_cli.updates.gate import Gate
from deepthink_cli.updates.registry import values_of


@dataclass(frozen=True)
class RunPlan:
    """Every task with every seed and gate; each has a row for every scored iteration, and as many for a dev set.

    All `iterations` readings are made; those in `scored` have rows. `demonstrations` replace those drawn with seeds;
    `dev_size` counts dev rows (None: as many as test rows). With a `chat`, all demonstrations are turns of a
    conversation.
    """

    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    iterations: int
    scored: tuple[int, ...]
    gates: tuple[Gate, ...]
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

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts to score: `test`, and `dev` if T and eta are chosen."""
        return ("test", "dev") if self.select_dev else ("test",)


@dataclass(frozen=True, eq=False)
class RunJob:
    """One task with one seed: its demonstrations, as many as fit the model, and its queries.

    `task_sha256` is the digest of the task's definition; `rows_sha256` holds that of the queries of every scored part.
    """

    task: Task
    task_sha256: str
    seed: int
    evaluated: EvaluationSet
    drawn: Drawn
    demonstrations: TokenizedDemonstrations
    rows_sha256: Mapping[Part, str]

    def queries(self, plan: RunPlan, part: Part) -> Iterator[Query]:
        """The queries of the test part, or of the dev part that chooses T and eta, read again.

        Raises DeepThinkError after the last one if they no longer match `rows_sha256`.
        """
        is_test = part == "test"
        rows = self.evaluated if is_test else dev_set(self.task, self.evaluated, self.drawn, plan.dev_size)
        digests = []
        for query in rows:
            digests.append(row_digest(query))
            yield query
        if rows_digest(digests) != self.rows_sha256[part]:
            raise DeepThinkError(
                f"task {self.task.name}, seed {self.seed}: its {part} rows were changed after this run had read them; "
                "restore them, or run into a new folder"
            )


def prepare_jobs(plan: RunPlan, spec: ModelSpec, task: Task) -> Iterator[RunJob]:
    """Yield a task's jobs, one per seed, with every check that does not need the weights.

    Demonstrations that do not fit the model are dropped, starting with the first. Raises InputError for a task
    whose rows cannot be read, or if no demonstration fits.
    """
    evaluated, task_sha256 = evaluation_set(task, plan.protocol, plan.source, plan.limit), digest(task)
    for seed in plan.seeds:
        drawn = _drawn(plan, evaluated, seed)
        demonstrations = _fitted(plan, spec, f"task {task.name}, seed {seed}", drawn.demonstrations)
        rows: dict[Part, str] = {"test": evaluated.rows_sha256}
        if plan.select_dev:  # raises before a model is loaded if the task has no dev rows
            rows["dev"] = rows_digest(map(row_digest, dev_set(task, evaluated, drawn, plan.dev_size)))
        yield RunJob(task, task_sha256, seed, evaluated, drawn, demonstrations, rows)
    evaluated.pools.clear()


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
        sampling="given" if plan.demonstrations else plan.sampling or job.task.sampling,
        shots=len(job.drawn.demonstrations.examples),
        seed=job.seed,
        order_seed=plan.order_seed,
        **values_of(plan.gates[0]),
        positions=plan.positions,
        iteration=1,
        demonstrations_sha256=job.demonstrations.sha256,
        weights_sha256=identity.weights_sha256 or None,
        chat=job.demonstrations.chat,
    )
    dev_split, dev_size = job.task.dev or job.task.demonstrations, plan.dev_size or len(job.evaluated)
    dev = replace(base, part="dev", split=dev_split, limit=dev_size)
    return [
        replace(setting, **values_of(gate), iteration=iteration, rows_sha256=job.rows_sha256[setting.part])
        for setting in (base, dev)
        if setting.part in plan.parts
        for gate in plan.gates
        for iteration in plan.scored
    ]


def scorings(plan: RunPlan, job: RunJob, wanted: Iterable[Setting]) -> int:
    """The number of inputs to score for the wanted rows: T = 1 once for all gates, dev sets in full."""
    sizes = {"test": len(job.evaluated), "dev": plan.dev_size or len(job.evaluated)}
    scored = {(each.part, each.iteration, each.iteration > 1 and each.gate) for each in wanted}
    return sum(sizes[part] for part, _, _ in scored)


def _drawn(plan: RunPlan, evaluated: EvaluationSet, seed: int) -> Drawn:
    if plan.demonstrations is not None:
        return Drawn(plan.demonstrations, Counter(), frozenset())
    return draw_demonstrations(evaluated.task, evaluated, plan.shots, seed, plan.order_seed, plan.sampling)


def _fitted(plan: RunPlan, spec: ModelSpec, job: str, demonstrations: DemonstrationSet) -> TokenizedDemonstrations:
    """As many of the last demonstrations as fit T readings and a query after them."""
    limits, method = spec.limits, (plan.positions, plan.iterations)
    demonstrations, examples = replace(demonstrations, chat=plan.chat), demonstrations.examples
    tokens = cache(lambda number: count_tokens(spec.tokenizer, demonstrations, examples[-number:]))
    fit = most_held(limits, *method, tokens, len(examples), share=0.75)
    if not fit:
        raise InputError(
            f"{job}: none of its demonstrations fits: the last has {tokens(1)} tokens, {spec.id} holds "
            f"{limits.largest(*method)} in T = {plan.iterations} readings; omit the task, or use --positions restarted"
        )
    fitted = tokenize_demonstrations(spec.tokenizer, replace(demonstrations, examples=examples[-fit:]))
    spec.check_ids(fitted.token_ids, f"{job}: demonstrations")
    return fitted
