"""The figure by which an evaluation is judged: a metric of the last iteration, with the correction in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from deepthink_cli.evaluation.metrics import Metrics, Probabilities, wilson
from deepthink_cli.multilabel import LabelSets

ACCURACY, MICRO_F1, LOG_PROBABILITY = "accuracy", "micro_f1", "log_probability"
_OF_ROWS = (ACCURACY, "accuracy_mean_per_token", "subset_accuracy")  # shares of rows, which have Wilson's interval


@dataclass(frozen=True)
class Judged:
    """A metric of the last iteration: `judged` in `eval --json`, which `--fail-under` compares.

    `interval` is the metric's 95 % interval, if it has one. `correction` is `none` for the model's own scores.
    """

    metric: str
    value: float
    interval: tuple[float, float] | None
    iteration: int
    correction: str

    @classmethod
    def of(
        cls, found: Mapping[int, Metrics | Probabilities | LabelSets], metric: str, rows: int, correction: str
    ) -> Self:
        """The metric of the last iteration in `found`, evaluated on `rows` rows."""
        last = max(found)
        value: float = getattr(found[last], metric)
        interval = wilson(value, rows) if metric in _OF_ROWS else getattr(found[last], f"{metric}_ci95", None)
        return cls(metric, value, interval, last, correction)
