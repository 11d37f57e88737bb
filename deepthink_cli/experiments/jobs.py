"""The jobs of a run: each has its demonstrations, drawn before the model is loaded or chosen with it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from textwrap import shorten
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Example, Query
from deepthink_cli.data.same_input import row_digest, rows_digest, same_rows
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.fitted import fitted
from deepthink_cli.experiments.plan import RunPlan, cells, scorings
from deepthink_cli.experiments.results import Part, Setting
from deepthink_cli.io.text import canonical_json
from deepthink_cli.method import Method
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.rereading import reread
from deepthink_cli.selection.choice import Request, check_request, choose_demonstrations
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.store import Store
from deepthink_cli.tasks.catalogue import digest
from deepthink_cli.tasks.evaluated import check_held_out, pool_of_task
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.judges import check_may_run, judge_of
from deepthink_cli.tasks.splits import Drawn, EvaluationSet, dev_set, draw_demonstrations, evaluation_set
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING


def check_free(plan: RunPlan, task: Task) -> None:
    """Raise InputError for a task with free answers and options of scores, and for programs that may not be run."""
    if task.free is None:
        return
    check_may_run(task, plan.options.run_code)
    options = plan.options
    wrong = {
        ("score", options.score): options.score != "sum",
        ("calibrate", ",".join(options.calibrations)): options.calibrations != (NONE,),
        ("demos_by", ",".join(options.demos_by)): bool(options.demos_by),
        ("technique", ",".join(options.techniques)): any(each.members > 1 for each in options.chosen_techniques),
        ("choose_on", "dev"): options.selects_on_dev and judge_of(task.free).runs_code,
    }
    for (field, value), given in wrong.items():
        if given:
            reason = f"task {task.name} has free answers, without scores; run it without this option"
            raise InputError.of(field, value, reason)


class SharedRows:
    """The evaluation sets of tasks, each made once for runs with the same protocol, source and limit."""

    def __init__(self) -> None:
        self._sets: dict[Any, EvaluationSet] = {}

    def of(self, plan: RunPlan, task: Task) -> EvaluationSet:
        """The rows that a run evaluates of a task; raises as `evaluation_set`."""
        key = (task.name, digest(task), plan.protocol, plan.source, plan.options.limit)
        if key not in self._sets:
            self._sets[key] = evaluation_set(task, plan.protocol, plan.source, plan.options.limit)
        return self._sets[key]

    def clear(self) -> None:
        """Forget the training rows, which take the most memory and are not needed once runs are prepared."""
        for each in self._sets.values():
            each.pools.clear()


@dataclass(frozen=True, eq=False)
class RunJob:
    """One task with one seed, one choice of demonstrations and one technique, and its queries.

    `members` are the demonstrations, as many as fit the model: one set, or the orders of an ensemble; `plain` and
    `bound_by` are as in `Fitted`. `sampling` names how they were chosen; `from_pool` says whether by `demos_by` of the
    plan. `task_sha256` is the digest of the task's definition; `rows_sha256` holds that of the queries of every scored
    part. `technique` makes the memory.
    """

    task: Task
    task_sha256: str
    seed: int
    evaluated: EvaluationSet
    drawn: Drawn
    members: tuple[TokenizedDemonstrations, ...]
    plain: TokenizedDemonstrations
    rows_sha256: Mapping[Part, str]
    sampling: str
    technique: Technique
    bound_by: str | None = None
    from_pool: bool = False

    @property
    def tuning(self) -> Trained | None:
        """The technique if it trains the memory."""
        return self.technique if isinstance(self.technique, Trained) else None

    @property
    def recorded(self) -> str | None:
        """What its rows record of the technique."""
        recorded = self.technique.recorded()
        return None if recorded is None else str(recorded)

    @property
    def demonstrations(self) -> TokenizedDemonstrations:
        """The demonstrations; of an ensemble, in their first order."""
        return self.members[0]

    @property
    def longest(self) -> TokenizedDemonstrations:
        """The member of the most tokens, after which the fewest queries fit."""
        return max(self.members, key=lambda member: len(member.token_ids))

    def fewer(self, model: str) -> str | None:
        """How many demonstrations fit a model, and the technique that allows no more; None if all fit."""
        if not self.left_out:
            return None
        fit = f"{len(self.plain.examples)} of {len(self.drawn.demonstrations.examples)} demonstrations fit {model}"
        by, whom = ("", "") if self.bound_by == DEEP_THINKING else (f" with {self.bound_by}", " for every method")
        return f"{self.drawn_as}: {fit}{by}; the first {self.left_out} are left out{whom}"

    @property
    def left_out(self) -> int:
        """The number of drawn demonstrations that do not fit the model, and are not read."""
        return len(self.drawn.demonstrations.examples) - len(self.plain.examples)

    @cached_property
    def sha256(self) -> str:
        """The digest of the demonstrations; of an ensemble that leaves some out, of all its orders."""
        if len(self.members) == 1 or not self.left_out:
            return self.demonstrations.sha256
        # Where all fit, the first order determines the others.
        return hashlib.sha256(canonical_json([member.sha256 for member in self.members]).encode()).hexdigest()

    @property
    def drawn_as(self) -> str:
        """The name in messages of what all techniques have in common."""
        return ", ".join([self.task.name, f"seed {self.seed}", *([self.sampling] if self.from_pool else [])])

    @property
    def label(self) -> str:
        """The job's name in messages."""
        return self.drawn_as if self.recorded is None else f"{self.drawn_as}, {self.recorded}"

    def scorings(self, plan: RunPlan, wanted: Iterable[Setting]) -> int:
        """The number of inputs to score for the wanted rows."""
        return scorings(plan, len(self.evaluated), len(self.members), wanted)

    def queries(self, plan: RunPlan, part: Part) -> Iterator[Query]:
        """The queries of the test part, or of the dev part that chooses T and eta, read again.

        Raises DeepThinkError after the last one if they no longer match `rows_sha256`.
        """
        if part == "test":
            return iter(self.evaluated)
        rows = dev_set(self.task, self.evaluated, self.drawn, plan.options.dev_size)
        return same_rows(rows, self.rows_sha256[part], f"task {self.task.name}, seed {self.seed}: its {part} rows")


@dataclass(frozen=True, eq=False)
class PendingJobs:
    """The jobs of one task and seed whose demonstrations a method chooses once the model is loaded."""

    task: Task
    task_sha256: str
    seed: int
    evaluated: EvaluationSet
    pool: PoolRows
    request: Request

    def rows(self, plan: RunPlan) -> int:
        """The number of rows of these jobs."""
        return sum(len(cells(plan, technique)) for technique in plan.options.chosen_techniques)

    def scorings(self, plan: RunPlan) -> int:
        """The number of inputs to score for these jobs, without those of the choice."""
        return sum(
            scorings(plan, len(self.evaluated), technique.members, cells(plan, technique))
            for technique in plan.options.chosen_techniques
        )

    def jobs(self, plan: RunPlan, spec: ModelSpec, engine: Engine, store: Store | None) -> Iterator[RunJob]:
        """Choose the demonstrations and yield a job for every technique; raises as `prepare_jobs`."""
        chosen = choose_demonstrations(engine, self.pool, self.request, store)
        left_out = Counter({**self.pool.left_out, **self.pool.reasons})
        drawn = Drawn(chosen.demonstrations, left_out)
        yield from _with_techniques(
            plan, spec, self.evaluated, self.task_sha256, self.seed, drawn, self.request.method, from_pool=True
        )


def prepare_jobs(
    plan: RunPlan, spec: ModelSpec, task: Task, shared: SharedRows | None = None
) -> Iterator[RunJob | PendingJobs]:
    """Yield a task's jobs for every seed, with every check that does not need the weights.

    Demonstrations that do not fit the model are dropped, starting with the first. Rows that are `shared` with other
    runs are kept. Raises InputError for a task whose rows cannot be read, or if no demonstration fits.
    """
    check_free(plan, task)
    evaluated, task_sha256 = (shared or SharedRows()).of(plan, task), digest(task)
    if plan.options.demos_by:
        fitting = pool_of_task(task, evaluated).fitting(spec.tokenizer, spec.limits)
    for seed in plan.options.seeds:
        if not plan.options.demos_by:
            drawn = _drawn(plan, evaluated, seed)
            sampling = "given" if plan.demonstrations else plan.sampling or task.sampling
            yield from _with_techniques(plan, spec, evaluated, task_sha256, seed, drawn, sampling)
            continue
        pool = fitting.sampled(plan.options.pool_size, seed)
        for method in plan.options.demos_by:
            request = Request(method, plan.shots or task.shots, seed, plan.options.balance, chat=plan.chat)
            check_request(pool, request)
            yield PendingJobs(task, task_sha256, seed, evaluated, pool, request)
    if shared is None:
        evaluated.pools.clear()


def _with_techniques(
    plan: RunPlan,
    spec: ModelSpec,
    evaluated: EvaluationSet,
    task_sha256: str,
    seed: int,
    drawn: Drawn,
    sampling: str,
    from_pool: bool = False,
) -> Iterator[RunJob]:
    rows: dict[Part, str] = {"test": evaluated.rows_sha256}
    if plan.options.selects_on_dev:  # raises before a model is loaded if the task has no dev rows
        rows["dev"] = rows_digest(map(row_digest, dev_set(evaluated.task, evaluated, drawn, plan.options.dev_size)))
    fit = fitted(plan, spec, f"task {evaluated.task.name}, seed {seed}", drawn.demonstrations)
    for technique in plan.options.chosen_techniques:
        members = fit.members[technique.name]
        for rule in plan.options.rules:
            reread(spec.tokenizer, members[0], Method(2, rule), 2)  # raises for an order that cannot be changed
        technique.check(spec, members[0])
        yield RunJob(
            task=evaluated.task,
            task_sha256=task_sha256,
            seed=seed,
            evaluated=evaluated,
            drawn=drawn,
            members=members,
            plain=fit.plain,
            rows_sha256=rows,
            sampling=sampling,
            technique=technique,
            bound_by=fit.bound_by,
            from_pool=from_pool,
        )


def _drawn(plan: RunPlan, evaluated: EvaluationSet, seed: int) -> Drawn:
    if plan.demonstrations is not None:
        examples = plan.demonstrations.examples
        rows = [(f"{option('demos')}: row {n}, {_beginning(each)!r}", each) for n, each in enumerate(examples, start=1)]
        check_held_out(rows, evaluated, "or use think and eval, which also reports the accuracy without such rows")
        return Drawn(plan.demonstrations, Counter())
    return draw_demonstrations(evaluated.task, evaluated, plan.shots, seed, plan.order_seed, plan.sampling)


def _beginning(example: Example) -> str:
    """The first words of a demonstration, for messages."""
    texts = [example.text] if isinstance(example.text, str) else example.text.values()
    return shorten(" ".join(texts), 40, placeholder="...")
