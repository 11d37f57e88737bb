"""A run of an experiment by one model, and its jobs.

A job has its demonstrations that fit the model, drawn before it is loaded or chosen with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Any

from deepthink_cli.calibration.labelled import check_labelled
from deepthink_cli.calibration.registry import FEWEST, NONE, of_labelled
from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.data.same_input import row_digest, rows_digest, same_rows
from deepthink_cli.data.template import Chat
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.experiment import Experiment, run_tasks
from deepthink_cli.experiments.results import Part, Setting
from deepthink_cli.io.cache import Store
from deepthink_cli.io.text import json_sha256
from deepthink_cli.model.limits import SHARE, count_tokens, last_of, max_demonstrations
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import ModelIdentity, TokenizedDemonstrations
from deepthink_cli.selection.choice import choose_demonstrations
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tasks.catalogue import digest
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import demonstrations_for
from deepthink_cli.tasks.sources import Source, source_of
from deepthink_cli.tasks.splits import Drawn, EvaluationSet, dev_set
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, technique_of
from deepthink_cli.updates import gate_values, rule_text


@dataclass(eq=False)
class Run:
    """A run of an experiment by one model: every task with every seed, technique and gate.

    `options` have one value in each axis that a run does not cross. `demonstrations` replace those drawn with seeds.
    With a `chat`, all demonstrations are turns of a conversation. A worker, which has a `spec` of its own,
    gets a run without it.
    """

    options: Experiment
    spec: ModelSpec
    tasks: tuple[Task, ...]
    source: Source
    demonstrations: DemonstrationSet | None = None
    chat: Chat | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "spec": None}


def planned(options: Experiment, spec: ModelSpec, given: DemonstrationSet | None = None) -> Run:
    """Find the tasks of a run, and read the file of demonstrations if there is one and they are not `given`.

    Raises InputError for no task, an unknown one, a data directory that does not exist, iterations beyond T, and wrong
    demonstrations.
    """
    tasks, folder = tuple(run_tasks(options.tasks)), None if options.data_dir is None else Path(options.data_dir)
    source = source_of(folder, options.models[0].offline)
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


@dataclass(frozen=True, eq=False)
class Prepared(ABC):
    """What has been prepared of a task with one seed, without the weights: one job, or those of a choice."""

    run: Run
    evaluated: EvaluationSet
    seed: int

    @property
    def task(self) -> Task:
        """The task."""
        return self.evaluated.task

    @property
    def model(self) -> ModelOptions:
        """The model that reads them."""
        return self.run.spec.options

    @property
    @abstractmethod
    def data(self) -> list[str]:
        """The digests of the task, of the evaluated rows, and of the demonstrations or of their pool."""

    @property
    def techniques(self) -> Sequence[Technique]:
        """The technique of each job."""
        return self.run.options.chosen_techniques

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(map(self.run.options.rows_of_job, self.techniques))

    @property
    def inputs(self) -> int:
        """The number of inputs to score for all rows, without those of a choice."""
        options, number = self.run.options, len(self.evaluated)
        return sum(options.scorings(number, each.members, options.points(each)) for each in self.techniques)


@dataclass(frozen=True, eq=False)
class Job(Prepared):
    """One task with one seed, one choice of demonstrations and one technique, and its queries.

    `drawn` are the demonstrations, `sampling` names how they were chosen. `members` are those that fit the model as
    `technique` reads them: one set, or the orders of an ensemble; `plain` is how Deep-Thinking reads them, and
    `bound_by` names the technique with which no more of them fit. `rows_sha256` has the digest of the queries of every
    scored part.
    """

    sampling: str
    drawn: Drawn
    rows_sha256: Mapping[Part, str]
    technique: Technique
    members: tuple[TokenizedDemonstrations, ...]
    plain: TokenizedDemonstrations
    bound_by: str | None = None

    @property
    def data(self) -> list[str]:
        """The digests of its task, its rows and its demonstrations."""
        return [digest(self.task), *self.rows_sha256.values(), self.sha256]

    @property
    def techniques(self) -> Sequence[Technique]:
        """Its technique."""
        return (self.technique,)

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

    @property
    def fewer(self) -> str | None:
        """How many demonstrations fit the model, and the technique that allows no more; None if all fit."""
        if not self.left_out:
            return None
        fit = f"{len(self.plain.examples)} of {len(self.drawn.demonstrations.examples)} demonstrations fit"
        by, whom = ("", "") if self.bound_by == DEEP_THINKING else (f" with {self.bound_by}", " for every method")
        return f"{self.drawn_as}: {fit} {self.run.spec.id}{by}; the first {self.left_out} are left out{whom}"

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
        return json_sha256([member.sha256 for member in self.members])

    @property
    def drawn_as(self) -> str:
        """The name in messages of what all techniques have in common."""
        method = [self.sampling] if self.run.options.demos_by else []
        return ", ".join([self.task.name, f"seed {self.seed}", *method])

    @property
    def label(self) -> str:
        """The job's name in messages."""
        return self.drawn_as if self.recorded is None else f"{self.drawn_as}, {self.recorded}"

    def scorings(self, wanted: Iterable[Setting]) -> int:
        """The number of inputs to score for the wanted rows, dev rows for their corrections included."""
        scored = [(part, *setting.point[1:]) for setting in wanted for part in parts_of(setting)]
        return self.run.options.scorings(len(self.evaluated), len(self.members), scored)

    def queries(self, part: Part) -> Iterator[Query]:
        """The queries of the test part, or of the dev part that chooses T and eta, read again.

        Raises DeepThinkError after the last one if they no longer match `rows_sha256`.
        """
        if part == "test":
            return iter(self.evaluated)
        rows = dev_set(self.task, self.evaluated, self.drawn, self.run.options.dev_size)
        return same_rows(rows, self.rows_sha256[part], f"task {self.task.name}, seed {self.seed}: its {part} rows")

    def settings(self, identity: ModelIdentity) -> list[Setting]:
        """The settings of its rows by a model of this identity, in the order in which they are written."""
        run, options = self.run, self.run.options
        base = Setting(
            model=identity.id,
            model_sha256=identity.contents_sha256,
            dtype=identity.dtype,
            quantize=identity.quantize,
            task=self.task.name,
            task_sha256=digest(self.task),
            protocol=self.evaluated.protocol,
            part="test",
            split=self.evaluated.split,
            limit=options.limit,
            sampling=self.sampling,
            shots=len(self.drawn.demonstrations.examples),
            seed=self.seed,
            order_seed=run.options.orders[0],
            **gate_values(options.rules[0]),
            positions=run.options.positions[0],
            iteration=1,
            demonstrations_sha256=self.sha256,
            weights_sha256=identity.weights_sha256 or None,
            chat=self.demonstrations.chat,
            tokens=None if options.tokens == "prompt" else options.tokens,
            pool_size=options.pool_size if options.demos_by else None,
            balanced=self.drawn.balanced,
            technique=self.recorded,
            scoring=str(options.scoring) or None,
        )
        dev_split, dev_size = self.task.dev or self.task.demonstrations, options.dev_size or len(self.evaluated)
        of_part = {"test": base, "dev": replace(base, part="dev", split=dev_split, limit=dev_size)}
        return [
            replace(
                of_part[part],
                **gate_values(gate),
                update=rule_text(gate),
                iteration=iteration,
                rows_sha256=self.rows_sha256[part],
                calibration=None if calibration == NONE else calibration,
                labelled=dev_size if of_labelled([calibration]) else None,
                labelled_sha256=self.rows_sha256["dev"] if of_labelled([calibration]) else None,
            )
            for part, gate, iteration in options.points(self.technique)
            for calibration in options.calibrations
        ]


@dataclass(frozen=True, eq=False)
class PendingJobs(Prepared):
    """The jobs of one task and seed whose demonstrations a method chooses once the model is loaded."""

    pool: PoolRows
    choice: SelectOptions

    @property
    def data(self) -> list[str]:
        """The digests of their task, the evaluated rows and the pool."""
        return [digest(self.task), self.evaluated.rows_sha256, self.pool.sha256]

    def jobs(self, engine: Engine, store: Store | None) -> Iterator[Job]:
        """Choose the demonstrations and yield a job for every technique; raises as `jobs_after`."""
        chosen = choose_demonstrations(engine, self.pool, self.choice, store, chat=self.run.chat)
        left_out = Counter({**self.pool.left_out, **self.pool.reasons})
        drawn = Drawn(chosen.demonstrations, left_out, chosen.selected.balanced)
        yield from jobs_after(self.run, self.evaluated, self.seed, drawn, self.choice.demos_by)


def parts_of(setting: Setting) -> list[Part]:
    """The parts that are scored for a row: its own, and the dev rows to which its correction is fitted."""
    return [setting.part] if setting.labelled is None or setting.part == "dev" else [setting.part, "dev"]


def known(jobs: Iterable[Prepared]) -> list[Job]:
    """The jobs whose demonstrations are known."""
    return [job for job in jobs if isinstance(job, Job)]


def pending(jobs: Iterable[Prepared]) -> list[PendingJobs]:
    """The jobs whose demonstrations have to be chosen."""
    return [job for job in jobs if isinstance(job, PendingJobs)]


def jobs_after(run: Run, evaluated: EvaluationSet, seed: int, drawn: Drawn, sampling: str) -> Iterator[Job]:
    """A job for every technique after these demonstrations.

    Raises InputError if none of them fits the model, and for dev rows that are missing, or do not suffice for a
    correction that is fitted to them.
    """
    rows: dict[Part, str] = {"test": evaluated.rows_sha256}
    name = f"task {evaluated.task.name}, seed {seed}"
    if run.options.choose_on is not None:
        dev = dev_set(evaluated.task, evaluated, drawn, run.options.dev_size)
        rows["dev"] = rows_digest(map(row_digest, dev))
        for method in of_labelled(run.options.calibrations):
            try:
                check_labelled(method, dev, drawn.demonstrations, f"{name}: its dev rows")
            except InputError as error:
                more = f"{option('choose_on')} dev:{2 * max(len(dev), FEWEST)}"
                reason = f"{error.messages[0]}, as in {more}; or omit {option('calibrate')} {method.name}"
                raise InputError(reason) from error
    fit, bound_by = fitted(run, name, drawn.demonstrations)
    (plain,) = tokenized(run, name, technique_of(DEEP_THINKING), fit)
    for technique in run.options.chosen_techniques:
        members = tuple(tokenized(run, name, technique, fit))
        technique.check(run.spec, members[0])
        yield Job(run, evaluated, seed, sampling, drawn, rows, technique, members, plain, bound_by)


def fitted(run: Run, job: str, drawn: DemonstrationSet) -> tuple[DemonstrationSet, str | None]:
    """The last of the drawn demonstrations: as many as fit T readings and a query with every technique of the run.

    Also the name of the technique with which no more of them fit; None if all do. Raises InputError if the last one
    does not fit with a technique.
    """
    drawn = replace(drawn, template=replace(drawn.template, tokens=run.options.tokens), chat=run.chat)
    tokenizer, limits, iterations = run.spec.tokenizer, run.spec.limits, run.options.iterations

    @cache
    def tokens(technique: Technique, number: int) -> int:
        readings = technique.sets(last_of(drawn, number))
        return max(count_tokens(tokenizer, reading, reading.examples) for reading in readings)

    fit, agreed, bound_by = len(drawn.examples), 0, None
    for technique in cycle(run.options.chosen_techniques):  # until all agree: fewer demonstrations can be more tokens
        held = max_demonstrations(limits, run.options.positions[0], iterations, partial(tokens, technique), fit, SHARE)
        if not held:
            largest = limits.largest(run.options.positions[0], iterations)
            named, left = "", "the task"
            if technique.name != DEEP_THINKING:
                named, left = f" with {option('technique')} {technique.name}", f"{technique.name} or the task"
            raise InputError(
                f"{job}: none of its demonstrations fits{named}: the last has {tokens(technique, 1)} tokens, "
                f"{run.spec.id} holds {largest} in T = {iterations} readings; omit {left}, or use "
                f"{option('positions')} restarted"
            )
        fit, agreed, bound_by = (fit, agreed + 1, bound_by) if held == fit else (held, 1, technique.name)
        if agreed == len(run.options.techniques):
            break
    return last_of(drawn, fit), bound_by


def tokenized(
    run: Run, job: str, technique: Technique, demonstrations: DemonstrationSet
) -> Iterator[TokenizedDemonstrations]:
    """What a technique reads: one set, or the orders of an ensemble; raises InputError for tokens that are unknown."""
    for reading in technique.sets(demonstrations):
        found = tokenize_demonstrations(run.spec.tokenizer, reading)
        run.spec.check_ids(found.token_ids, f"{job}: demonstrations")
        yield found
