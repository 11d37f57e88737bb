"""The figure by which an evaluation is judged, and the least value that it must reach (`eval --fail-under`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from deepthink_cli.errors import BelowThreshold, InputError, option
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


SEVERAL = (MICRO_F1, "macro_f1", "subset_accuracy")  # metrics of rows with several labels
SHARES = (ACCURACY, "accuracy_mean_per_token", *SEVERAL)  # between 0 and 1
METRICS = (*SHARES, LOG_PROBABILITY)  # larger is better; the names are those of eval --json


@dataclass(frozen=True)
class Threshold:
    """The least value of a metric: a share for `SHARES`, nats for the log-probability."""

    metric: str
    least: float
    text: str

    @classmethod
    def of(cls, text: str) -> Self:
        """A share of accuracy as in `0.8`, or METRIC=VALUE; raises InputError for another metric or value."""
        name, equals, value = text.rpartition("=")
        metric = name.strip() if equals else ACCURACY
        if metric not in METRICS:
            close = get_close_matches(metric, METRICS, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InputError.of("fail_under", text, f"unknown metric {metric!r}; {meant}there are {', '.join(METRICS)}")
        try:
            least = float(value)
        except ValueError:
            least = float("nan")
        if metric in SHARES and not 0 <= least <= 1:
            example = "" if not name else f"{metric}="
            raise InputError.of("fail_under", text, f"a share between 0 and 1, as in {example}0.8")
        if metric not in SHARES and not float("-inf") < least <= 0:
            raise InputError.of("fail_under", text, f"a log-probability in nats, 0 or less, as in {metric}=-0.5")
        return cls(metric, least, text)

    def check_possible(self, has_labels: bool, has_scores: bool, several: bool = False) -> None:
        """Raise InputError for a metric that the rows do not have.

        It depends on whether rows have common labels, scores, and `several` labels each.
        """
        if several and self.metric not in SEVERAL:
            raise InputError.of("fail_under", self.text, f"rows with several labels have {', '.join(SEVERAL)}")
        if not several and self.metric in (MICRO_F1, "subset_accuracy"):
            raise InputError.of("fail_under", self.text, "is of rows with several labels; judge accuracy or macro_f1")
        if self.metric == "macro_f1" and not has_labels:
            raise InputError.of("fail_under", self.text, "rows with their own candidates have no F1; judge accuracy")
        if self.metric == LOG_PROBABILITY and not has_scores:
            raise InputError.of("fail_under", self.text, "generated answers have no log-probability; judge accuracy")

    def check(self, judged: Judged) -> None:
        """Raise BelowThreshold if the judged value is too small; it must be of the same metric."""
        assert judged.metric == self.metric
        if judged.value < self.least:
            raise BelowThreshold(f"{self.metric} {judged.value:.4f} is below {option('fail_under')} {self.text}")
