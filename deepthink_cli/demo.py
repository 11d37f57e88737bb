"""The measurements of `deepthink demo`: what thinking changes with each eta, and what a memory saves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from deepthink_cli.data.examples import DemonstrationSet, Query, read_demonstrations, read_queries
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.evaluation.evaluation import Evaluation, Evaluator
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.method import Method
from deepthink_cli.model.tokens import query_tokenizer, tokenize_demonstrations
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, predicted, predictions
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.rows import draw
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import dev_set, evaluation_set
from deepthink_cli.thinking import think
from deepthink_cli.updates.gate import Gate

_PROTOCOL = "official"
_AGAIN = 20  # inputs before which the demonstrations are read again, to time it


@dataclass(frozen=True)
class Exhibit:
    """Demonstrations, rows to show, and `dev`, other rows to choose T and eta on; their names are for the reader."""

    name: str
    rows_name: str
    demonstrations: DemonstrationSet
    rows: Sequence[Query]
    dev_name: str = ""
    dev: Sequence[Query] = ()


@dataclass(frozen=True)
class ReadingCost:
    """Seconds for one reading of `tokens` demonstration tokens, for all `inputs` after it, and for `again` inputs.

    Before each of those `again` inputs the demonstrations were read again; `difference` is the largest difference
    between a score of theirs and the same score after one reading, in nats.
    """

    tokens: int
    reading: float
    inputs: int
    scoring: float
    again: int
    rereading: float
    difference: float

    @property
    def ratio(self) -> float:
        """How many times as long an input takes if the demonstrations are read again before it."""
        return (self.rereading / self.again) / (self.scoring / self.inputs)


def exhibit_of_files(name: str, folder: Path, rows: str, dev: str | None = None) -> Exhibit:
    """The demonstrations `demos.jsonl` of a folder, with other files of it as rows."""
    demonstrations = read_demonstrations(str(folder / "demos.jsonl"))

    def queries(file: str) -> list[Query]:
        template, labels = demonstrations.template, demonstrations.labels
        return list(read_queries(str(folder / file), template, labels, labelled=True))

    return Exhibit(name, rows, demonstrations, queries(rows), dev or "", queries(dev) if dev else ())


def exhibit_of_task(name: str, source: Source, limit: int, dev: int, tell: Tell = silent) -> Exhibit:
    """Demonstrations of a task, drawn with seed 0, and samples of its test rows and of its other training rows."""
    task = find_task(name)
    evaluated = evaluation_set(task, _PROTOCOL, source, limit)
    drawn = draw(task, _PROTOCOL, source, TaskOptions.checked(), tell)
    others = dev_set(task, evaluated, drawn, dev)
    return Exhibit(
        name, f"its {evaluated.split} split", drawn.demonstrations, list(evaluated), "training split", others
    )


def measure(
    engine: Engine, demonstrations: DemonstrationSet, rows: Sequence[Query], eta: float, at: Sequence[int], tell: Tell
) -> Evaluation:
    """The evaluation of rows after each of the numbers of readings `at`, which include 1."""
    tokenized = tokenize_demonstrations(engine.tokenizer, demonstrations)
    method = Method(max(at), Gate(eta))
    memories = [memory for memory in think(engine, tokenized, method) if memory.iteration in at]
    evaluator = Evaluator(at, tokenized.labels)
    progress = Progress(f"eta {eta}", 0, len(rows))
    for part in predictions(engine, [memories], rows, size=EVALUATED, skip=UNSCORABLE, tell=tell, progress=progress):
        for prediction in predicted(part):
            evaluator.add(prediction)
    return evaluator.result()


def reading_cost(engine: Engine, demonstrations: DemonstrationSet, rows: Sequence[Query]) -> ReadingCost:
    """Time scoring after one reading, and with the demonstrations read again before each of the first inputs.

    Readings that are fastest together are made together. There must be at least one row.
    """
    tokenized = tokenize_demonstrations(engine.tokenizer, demonstrations)
    queries, reading = query_tokenizer(engine.tokenizer, tokenized)(rows), Reading(tokenized.token_ids)
    started = time.perf_counter()
    (memory,) = engine.read([reading])
    read = time.perf_counter()
    (sums,) = engine.score([memory], engine.plan(queries))
    scored = time.perf_counter()
    again = queries[:_AGAIN]
    together = max(1, engine.tokens_together // len(reading))
    difference, left = 0.0, iter(zip(again, sums, strict=False))
    while part := list(islice(left, together)):
        for fresh, (query, before) in zip(engine.read([reading] * len(part)), part, strict=True):
            ((after,),) = engine.score([fresh], engine.plan([query]))
            difference = max(difference, *(abs(one - other) for one, other in zip(before, after, strict=True)))
    seconds = time.perf_counter() - scored
    return ReadingCost(len(reading), read - started, len(queries), scored - read, len(again), seconds, difference)


def best_settings(evaluations: Mapping[float, Evaluation]) -> tuple[float, int]:
    """The eta and T of the highest mean log-probability of the true label; the smallest of several."""
    means = {
        (eta, iteration): each.log_probability
        for eta, evaluation in evaluations.items()
        for iteration, each in evaluation.probabilities.items()
    }
    return max(sorted(means), key=means.__getitem__)
