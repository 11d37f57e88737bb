"""Metrics of the probabilities of predictions: log-probability of the true label, and expected calibration error.

Knows probabilities and labels; does not know models.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

BINS = 10  # of equal width, for the expected calibration error
_EDGES = tuple(number / BINS for number in range(1, BINS))


@dataclass(frozen=True)
class Probabilities:
    """How good the probabilities of one iteration's predictions are.

    `log_probability` is the mean log of the true label's share among its candidates, in nats, and
    `log_probability_ci95` Student's interval for it, None for a single row. `ece` is the expected calibration error
    over `ece_bins` bins of equal width (Naeini et al. 2015): the mean over rows of |accuracy - mean probability| of the
    bin that the probability of the predicted label falls in.
    """

    log_probability: float
    log_probability_ci95: tuple[float, float] | None
    ece: float
    ece_bins: int = BINS


class RunningMean:
    """The mean of numbers and its interval, in constant memory (Welford 1962)."""

    def __init__(self) -> None:
        self.n, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        """Count one number."""
        self.n += 1
        difference = value - self.mean
        self.mean += difference / self.n
        self._squares += difference * (value - self.mean)

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Student's 95 % interval for the mean; None for fewer than two numbers."""
        if self.n < 2:
            return None
        from scipy.special import stdtrit

        half = float(stdtrit(self.n - 1, 0.975)) * math.sqrt(self._squares / (self.n - 1) / self.n)
        return self.mean - half, self.mean + half


class ProbabilityTally:
    """Running sums over predictions: memory does not grow with their number."""

    def __init__(self) -> None:
        self.log_probability = RunningMean()
        self.excess = [0.0] * BINS  # of each bin, the sum over rows of probability - (1 if right else 0)

    def add(self, log_probability: float, probability: float, right: bool) -> None:
        """Count one prediction: the log-probability of the true label, and the probability of the predicted one."""
        self.log_probability.add(log_probability)
        self.excess[bisect_left(_EDGES, probability)] += probability - right

    def result(self) -> Probabilities:
        """The metrics of all counted predictions, of which there must be at least one."""
        n = self.log_probability.n
        ece = sum(map(abs, self.excess)) / n
        return Probabilities(self.log_probability.mean, self.log_probability.ci95, ece)
