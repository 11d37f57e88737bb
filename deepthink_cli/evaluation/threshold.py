"""The least value of a metric that an evaluation must reach: `deepthink eval --fail-under`."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Self

from deepthink_cli.errors import BelowThreshold, InputError

if TYPE_CHECKING:
    from deepthink_cli.evaluation.evaluation import Evaluation

SHARES = ("accuracy", "accuracy_mean_per_token", "macro_f1")  # between 0 and 1
METRICS = (*SHARES, "log_probability")  # metrics of which more is better; named as in eval --json


@dataclass(frozen=True)
class Threshold:
    """The least value of a metric: a share for those of `SHARES`, nats for the log-probability."""

    metric: str
    least: float
    text: str

    @classmethod
    def of(cls, text: str) -> Self:
        """A share of accuracy as in `0.8`, or METRIC=VALUE; raises InputError for another metric or value."""
        name, _, value = text.rpartition("=")
        metric = name.strip() or "accuracy"
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

    def check_possible(self, has_labels: bool, has_scores: bool) -> None:
        """Raise InputError for a metric that rows with their own candidates, or generated answers, do not have."""
        if self.metric == "macro_f1" and not has_labels:
            raise InputError.of("fail_under", self.text, "rows with their own candidates have no F1; judge accuracy")
        if self.metric == "log_probability" and not has_scores:
            raise InputError.of("fail_under", self.text, "generated answers have no log-probability; judge accuracy")

    def check(self, judged: Evaluation) -> None:
        """Raise BelowThreshold if the last iteration's value is below the least."""
        last = judged.probabilities[max(judged.results)] if self.metric == "log_probability" else judged.last
        value: float = getattr(last, self.metric)
        if value < self.least:
            raise BelowThreshold(f"{self.metric} {value:.4f} is below --fail-under {self.text}")
