"""Evaluate a memory on labelled rows: what `deepthink eval` does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.data.examples import Query, read_queries
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import Problems
from deepthink_cli.evaluation import Evaluation, Evaluator, evaluated, with_first_reading
from deepthink_cli.memory import Memory
from deepthink_cli.options import ModelOptions
from deepthink_cli.prediction import Prediction
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import evaluation_set, sampled
from deepthink_cli.updates.registry import values_of
from deepthink_cli.workflows.events import Progress, Tell, silent
from deepthink_cli.workflows.inputs import CheckedRows, check_rows, check_tokens
from deepthink_cli.workflows.memories import (
    OpenedMemory,
    check_memories,
    find_its_model,
    load_both,
    opened,
)
from deepthink_cli.workflows.task_rows import announce, check_memory, tell_of_leaks


@dataclass(frozen=True)
class EvaluatedRows:
    """The rows to evaluate: a file's, or a task's split under a protocol.

    `count` is the number of queries; `skipped` counts rows that could not be scored, by reason; `checked` is the
    result of checking a file's rows, None for a task.
    """

    queries: Iterable[Query]
    count: int
    split: str
    task: str | None = None
    protocol: str | None = None
    skipped: Counter[str] | None = None
    checked: CheckedRows | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """The content of `deepthink eval --json`: the metrics of every iteration, and the rows and memory evaluated."""

    evaluation: Evaluation
    memory: OpenedMemory
    task: str | None
    split: str
    protocol: str | None
    skipped: dict[str, int]
    seconds: float

    @property
    def inputs_per_second(self) -> float:
        """Evaluated rows per second, including the time to load the model, if it was loaded."""
        return self.evaluation.n / self.seconds

    @property
    def accuracy(self) -> float:
        """The accuracy of the last iteration."""
        return self.evaluation.last.accuracy

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        provenance, method = self.memory.provenance, self.memory.provenance.method
        memory = {
            "file": self.memory.name,
            "model": provenance.model.id,
            **values_of(method.update),
            "positions": method.positions,
            "iterations": method.iterations,
            "kept": list(self.memory.kept),
            "shots": len(provenance.demonstrations.examples),
            "sha256": self.memory.sha256,
        }
        return {
            "task": self.task or provenance.task,
            "split": self.split,
            "protocol": self.protocol,
            "skipped": self.skipped,
            **self.evaluation.as_json(),
            "memory": memory,
            "seconds": self.seconds,
            "inputs_per_second": self.inputs_per_second,
        }


def rows_of_file(memory: OpenedMemory, path: str, limit: int | None = None) -> EvaluatedRows:
    """The labelled rows of a file, or a seeded sample of `limit`; raises InputError with all mistakes."""
    demonstrations, problems = memory.provenance.demonstrations, Problems()
    checked = check_rows(demonstrations, path, problems, labelled=True)
    problems.raise_any()
    assert checked is not None
    places = frozenset(sampled(range(checked.count), limit))
    queries = read_queries(path, demonstrations.template, demonstrations.labels, labelled=True)
    chosen = (query for place, query in enumerate(queries) if place in places)
    return EvaluatedRows(chosen, len(places), path, skipped=Counter(), checked=checked)


def rows_of_task(
    memory: OpenedMemory,
    name: str,
    protocol: str = "official",
    source: Source | None = None,
    limit: int | None = None,
    tell: Tell = silent,
) -> EvaluatedRows:
    """The rows that a task's protocol evaluates, with a warning if the memory's demonstrations are among them.

    Raises InputError for a memory that was made for other labels or fields.
    """
    source, task = source or Source(), find_task(name)
    check_memory(memory, task, tell)
    announce(source, 1, tell)
    rows = evaluation_set(task, protocol, source, limit)
    tell_of_leaks(memory, rows, tell)
    return EvaluatedRows(rows, len(rows), rows.split, task.name, rows.protocol, rows.skipped)


def evaluate(
    memory: str | Path | OpenedMemory | Memory | Sequence[Memory],
    rows: str | Path | EvaluatedRows,
    *,
    iteration: str = "all",
    options: ModelOptions | None = None,
    engine: Engine | None = None,
    observe: Callable[[Prediction], None] | None = None,
    tell: Tell = silent,
) -> EvaluationReport:
    """Evaluate a memory on labelled rows, next to plain in-context learning (T = 1) and the majority class.

    Args:
        memory: a file, the result of `open_memory`, or memories from think().
        rows: a file of labelled rows, or the result of `rows_of_file` or `rows_of_task`.
        iteration: which kept iterations of a file: a number, `last` or `all`.
        options: how to load the model that made the memory; unset options are taken from the memory.
        engine: the model, if it is already loaded.
        observe: called with every prediction: for each row, one per iteration.
        tell: called with every event.

    Raises InputError for a memory or rows that do not fit, as `open_memory` and `rows_of_file` do.
    """
    memory = opened(memory, iteration)
    rows = rows if isinstance(rows, EvaluatedRows) else rows_of_file(memory, str(rows))
    if engine is None:
        spec = find_its_model(memory, options, tell)
        check_tokens(memory.provenance.demonstrations, spec, rows.split, rows.checked)
        started = time.perf_counter()
        engine, stored = load_both(memory, spec, tell)
    else:
        started, stored = time.perf_counter(), memory.memories()
        check_memories(memory, stored, engine, tell)
    skipped = Counter[str]() if rows.skipped is None else rows.skipped
    evaluation = _evaluate(engine, stored, rows, skipped, observe, tell)
    seconds = time.perf_counter() - started
    return EvaluationReport(evaluation, memory, rows.task, rows.split, rows.protocol, dict(skipped), seconds)


def _evaluate(
    engine: Engine,
    stored: Sequence[Memory],
    rows: EvaluatedRows,
    skipped: Counter[str],
    observe: Callable[[Prediction], None] | None,
    tell: Tell,
) -> Evaluation:
    memories = with_first_reading(engine, stored)
    provenance = memories[0].provenance
    assert provenance is not None
    evaluator = Evaluator([memory.iteration for memory in memories], provenance.demonstrations.labels)
    for number, prediction in enumerate(evaluated(engine, memories, rows.queries, skipped), start=1):
        evaluator.add(prediction)
        if observe is not None:
            observe(prediction)
        if number % len(memories) == 0:
            tell(Progress("evaluating", number // len(memories), rows.count))
    return evaluator.result()
