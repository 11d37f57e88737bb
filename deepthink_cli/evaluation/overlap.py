"""Evaluated rows that are among the demonstrations of a memory, and the evaluation of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deepthink_cli.data.examples import Example, Query
from deepthink_cli.data.same_input import input_keys
from deepthink_cli.evaluation.evaluation import Evaluation, Evaluator
from deepthink_cli.events import Tell, Warn
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Prediction


@dataclass(frozen=True)
class Overlap:
    """How many of the evaluated rows are demonstrations, and the evaluation of the others, None if there are none."""

    rows: int
    rest: Evaluation | None

    def as_json(self) -> dict[str, Any]:
        """The overlap as JSON values."""
        return {"rows": self.rows, "rest": None if self.rest is None else self.rest.as_json()}


class OverlapEvaluator:
    """Evaluates the rows that are not among the demonstrations, in constant memory.

    Rows are compared with the demonstrations as the memory's template writes both (`input_keys`).
    """

    def __init__(
        self,
        demonstrations: Iterable[TokenizedDemonstrations],
        iterations: Sequence[int],
        calibrate: Sequence[str] = (),
    ) -> None:
        first, *others = demonstrations
        self.template, self.labels = first.template, first.labels
        self.known = {key for each in (first, *others) for example in each.examples for key in self._keys(example)}
        self.rest = Evaluator(iterations, self.labels, calibrate)
        self.memories, self.seen = len(iterations), 0
        self.query: Query | None = None
        self.known_query = False

    def add(self, prediction: Prediction) -> None:
        """Count one prediction; those of one query by all iterations follow each other."""
        query = prediction.query
        if query is not self.query:
            self.query, self.known_query = query, not self.known.isdisjoint(self._keys(query))
        if self.known_query:
            self.seen += 1
        else:
            self.rest.add(prediction)

    def result(self) -> Overlap | None:
        """The overlap; None if no row is a demonstration."""
        if not self.seen:
            return None
        return Overlap(self.seen // self.memories, self.rest.result() if self.rest.n else None)

    def _keys(self, row: Query | Example) -> frozenset[bytes]:
        return input_keys(row, self.template, self.labels)


def warn_of_overlap(overlap: Overlap | None, n: int, name: str, tell: Tell) -> None:
    """Warn that some of `n` rows, or all, are demonstrations of the memory `name`."""
    if overlap is None:
        return
    which = "all rows are" if overlap.rest is None else f"{overlap.rows} of {n} rows are"
    means = "the accuracy says nothing about new rows" if overlap.rest is None else "the others are reported apart"
    tell(Warn(f"{which} among the demonstrations of {name}: {means}"))
