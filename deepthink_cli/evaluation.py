"""How well each iteration of a memory predicts, next to plain in-context learning and the majority class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deepthink_cli.memory import Memory
from deepthink_cli.metrics import Metrics, Tally
from deepthink_cli.model import LanguageModel
from deepthink_cli.prediction import Prediction


@dataclass(frozen=True)
class Evaluation:
    """The metrics of every iteration, and what the last one confuses."""

    n: int
    results: dict[int, Metrics]
    majority: tuple[str, float] | None
    chance: float
    confusion: dict[str, dict[str, int]]

    @property
    def last(self) -> Metrics:
        """The metrics of the last iteration."""
        return self.results[max(self.results)]

    def as_json(self) -> dict[str, Any]:
        """The part of `eval --json` that the predictions decide (DESIGN 4.4)."""
        majority = None if self.majority is None else {"label": self.majority[0], "accuracy": self.majority[1]}
        return {
            "n": self.n,
            "results": [{"iteration": t, **asdict(metrics)} for t, metrics in self.results.items()],
            "majority": majority,
            "chance": self.chance,
            "confusion": self.confusion,
        }


class Evaluator:
    """Counts labelled predictions, iteration by iteration, in constant memory."""

    def __init__(self, iterations: Sequence[int], labels: Sequence[str]) -> None:
        self.tallies = {iteration: Tally(labels) for iteration in sorted(iterations)}
        self.chance = 0.0

    def add(self, prediction: Prediction) -> None:
        """Count one prediction, whose query must have a true label."""
        gold = prediction.query.gold
        assert gold is not None
        tally = self.tallies[prediction.iteration]
        tally.add(gold, prediction.label, prediction.label_mean_per_token, prediction.tied)
        self.chance += 1 / len(prediction.scores)

    def result(self) -> Evaluation:
        """The metrics of everything counted."""
        last = self.tallies[max(self.tallies)]
        results = {iteration: tally.metrics() for iteration, tally in self.tallies.items()}
        chance = self.chance / sum(tally.n for tally in self.tallies.values())
        return Evaluation(last.n, results, last.majority(), chance, last.table() if last.labels else {})


def with_first_reading(model: LanguageModel, memories: Sequence[Memory]) -> list[Memory]:
    """The memories with that of T = 1, read anew where it was not kept: plain in-context learning."""
    if any(memory.iteration == 1 for memory in memories):
        return list(memories)
    origin = memories[0].origin
    assert origin is not None
    first = model.read(origin.demonstrations.token_ids)
    return [replace(first, origin=origin), *memories]
