"""Score held-out rows after every reading of the memories that are made without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from deepthink_cli.engine.base import Engine, ScoringPlan
from deepthink_cli.memory import Memory
from deepthink_cli.method import Method
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.runs.in_step import think_in_batches
from deepthink_cli.scoring import score_each
from deepthink_cli.workflows.events import Progress, Tell
from deepthink_cli.workflows.tune_plan import LabelledRows, TrainingSet

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats


def held_out_scores(
    engine: Engine, rows: LabelledRows, sets: Sequence[TrainingSet], methods: Sequence[Method], tell: Tell
) -> list[Floats]:
    """For each set, log-probabilities (methods, T, n, C) of its n held-out rows after each reading of its memories.

    C is the most candidates of a row; a row with fewer has -inf for the rest. All readings are done in shared passes,
    as many at once as fit the device.
    """
    scorers = [_Scorer(engine, rows, each, methods) for each in sets]
    total, done = len(sets) * len(methods) * methods[0].iterations, 0
    thoughts = [(each.demonstrations, method) for each in sets for method in methods]

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[int]:
        for place, group in groupby(zip(numbers, memories, strict=True), lambda pair: pair[0] // len(methods)):
            made = {number % len(methods): memory for number, memory in group}
            scorers[place].score(made)
            yield len(made)

    tell(Progress("tuning", 0, total))
    for scored in think_in_batches(engine, thoughts, score):
        done = min(total, done + scored)  # a batch that runs out of memory is scored again
        tell(Progress("tuning", done, total))
    return [scorer.scores for scorer in scorers]


class _Scorer:
    """The scores of one set's held-out rows, whose queries are tokenised once."""

    def __init__(self, engine: Engine, rows: LabelledRows, of: TrainingSet, methods: Sequence[Method]) -> None:
        import numpy as np

        queries = [rows.queries[row] for row in of.rows]
        self.engine = engine
        self.plan: ScoringPlan = engine.plan(query_tokenizer(engine.tokenizer, of.demonstrations)(queries))
        width = max(len(query.candidates) for query in rows.queries)
        shape = (len(methods), methods[0].iterations, len(queries), width)
        self.scores: Floats = np.full(shape, -np.inf)

    def score(self, memories: dict[int, Memory]) -> None:
        """Score the memories of some methods, by the method's index, after the same reading."""
        numbers: list[Any] = list(memories)
        iteration = memories[numbers[0]].iteration
        if iteration == 1:  # the same memory for every method
            numbers, memories = [numbers], {0: memories[numbers[0]]}
        placed = [self.engine.place(memory) for memory in memories.values()]
        for number, scored in zip(numbers, score_each(self.engine, placed, self.plan), strict=True):
            for row, scores in enumerate(scored):
                self.scores[number, iteration - 1, row, : len(scores.sums)] = scores.sums
