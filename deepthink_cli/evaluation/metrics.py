"""Metrics of predictions, and their tables: accuracy with its interval, F1, ties, calibration error, changes by T."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054  # the normal distribution's 97.5 % point
BINS = 10  # bins of equal width for the expected calibration error
_EDGES = tuple(number / BINS for number in range(1, BINS))


@dataclass(frozen=True)
class LabelMetrics:
    """Precision, recall and F1 of a label, and the number of rows with this true label."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Metrics:
    """The agreement of one iteration's predictions with the true labels.

    `stderr` is sqrt(p (1 - p) / n); `ci95` is Wilson's interval; `macro_f1` is the mean F1 over the labels that occur,
    true or predicted. `ties` counts inputs with several best candidates (the first is chosen), `predicted` the answers
    by label. If every input has its own candidates, there are no common labels: `macro_f1` is None, `per_label` and
    `predicted` are empty.
    """

    accuracy: float
    stderr: float
    ci95: tuple[float, float]
    accuracy_mean_per_token: float
    macro_f1: float | None
    ties: int
    per_label: dict[str, LabelMetrics]
    predicted: dict[str, int]


class Tally:
    """Running counts of predictions, in constant memory.

    `labels` are the label words of all inputs; empty if every input has its own candidates.
    """

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.labels = tuple(labels)
        self.confusion: Counter[tuple[str, str]] = Counter()
        self.n = self.right = self.right_mean_per_token = self.ties = 0

    def add(self, gold: str, predicted: str, predicted_mean_per_token: str, tied: bool) -> None:
        """Count one prediction."""
        self.n += 1
        self.right += gold == predicted
        self.right_mean_per_token += gold == predicted_mean_per_token
        self.ties += tied
        if self.labels:
            self.confusion[gold, predicted] += 1

    def metrics(self) -> Metrics:
        """The metrics of all counted predictions; at least one is needed."""
        accuracy = self.right / self.n
        per_label = {label: self._label(label) for label in self._occurring()}
        return Metrics(
            accuracy=accuracy,
            stderr=math.sqrt(accuracy * (1 - accuracy) / self.n),
            ci95=wilson(accuracy, self.n),
            accuracy_mean_per_token=self.right_mean_per_token / self.n,
            macro_f1=sum(label.f1 for label in per_label.values()) / len(per_label) if per_label else None,
            ties=self.ties,
            per_label=per_label,
            predicted={label: self._predicted(label) for label in per_label},
        )

    def majority(self) -> tuple[str, float] | None:
        """The most frequent true label, and the accuracy of this answer to every row."""
        if not self.labels:
            return None
        gold: Counter[str] = Counter()
        for (label, _), count in self.confusion.items():
            gold[label] += count
        label = max(self._occurring(), key=lambda label: gold[label])
        return label, gold[label] / self.n

    def table(self) -> dict[str, dict[str, int]]:
        """The confusion table, true label first: {gold: {predicted: count}}, in the order of the labels."""
        order = dict.fromkeys([*self.labels, *self._occurring()])
        return {gold: {guess: self.confusion[gold, guess] for guess in order} for gold in order}

    def _occurring(self) -> list[str]:
        occurring = {label for pair in self.confusion for label in pair}
        return [label for label in self.labels if label in occurring] + sorted(occurring - set(self.labels))

    def _predicted(self, label: str) -> int:
        return sum(count for (_, guess), count in self.confusion.items() if guess == label)

    def _label(self, label: str) -> LabelMetrics:
        right = self.confusion[label, label]
        support = sum(count for (gold, _), count in self.confusion.items() if gold == label)
        guessed = self._predicted(label)
        precision = right / guessed if guessed else 0.0
        recall = right / support if support else 0.0
        f1 = 2 * right / (guessed + support)
        return LabelMetrics(precision, recall, f1, support)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of n (Wilson 1927, eq. 2)."""
    centre = share + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(frozen=True)
class Probabilities:
    """The quality of the probabilities of one iteration's predictions.

    `log_probability` is the mean log of the true label's share among its candidates, in nats; `log_probability_ci95` is
    Student's interval of this mean, None for a single row. `ece` is the expected calibration error over `ece_bins` bins
    of equal width (Naeini et al. 2015): the mean over rows of |accuracy - mean probability| in the bin of the predicted
    label's probability.
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
    """Running sums over predictions, in constant memory."""

    def __init__(self) -> None:
        self.log_probability = RunningMean()
        self.excess = [0.0] * BINS  # for each bin, the sum over rows of probability - (1 if right else 0)

    def add(self, log_probability: float, probability: float, right: bool) -> None:
        """Count one prediction: the log-probability of the true label, and the probability of the predicted label."""
        self.log_probability.add(log_probability)
        self.excess[bisect_left(_EDGES, probability)] += probability - right

    def result(self) -> Probabilities:
        """The metrics of all counted predictions; at least one is needed."""
        n = self.log_probability.n
        ece = sum(map(abs, self.excess)) / n
        return Probabilities(self.log_probability.mean, self.log_probability.ci95, ece)


@dataclass(frozen=True)
class Answer:
    """The answer of one iteration to one row: its label, and the log-probability of the true label in nats."""

    label: str
    log_probability: float


@dataclass(frozen=True)
class Changes:
    """The changes of one iteration since T = 1, over the same rows.

    `changed` counts rows with another label, of which `fixed` became right and `broken` became wrong. `log_probability`
    is the mean change of the true label's log-probability, in nats. Its interval is Student's, of paired differences;
    None for a single row.
    """

    changed: int
    fixed: int
    broken: int
    log_probability: float
    log_probability_ci95: tuple[float, float] | None

    @property
    def p(self) -> float:
        """The exact two-sided McNemar p of the rows fixed and broken."""
        return mcnemar(self.fixed, self.broken)


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p of McNemar's test (1947): a binomial test, with probability 1/2, of rows gained and lost.

    `gained` and `lost` count the rows that only one of two labellings gets right.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))


ALPHA = 0.05  # chance does not explain a difference with a smaller p


def by_chance(p: float) -> str:
    """Whether chance explains a difference, and the p of McNemar's exact test."""
    return f"{'within' if p >= ALPHA else 'beyond'} chance (exact McNemar p = {p:.2g})"


class ChangeTally:
    """Running counts of changes, in constant memory."""

    def __init__(self) -> None:
        self.changed = self.fixed = self.broken = 0
        self.log_probability = RunningMean()

    def add(self, gold: str, first: Answer, later: Answer) -> None:
        """Count one row: its true label, and its answers at T = 1 and later."""
        self.changed += first.label != later.label
        self.fixed += first.label != gold == later.label
        self.broken += first.label == gold != later.label
        self.log_probability.add(later.log_probability - first.log_probability)

    def result(self) -> Changes:
        """The changes of all counted rows; at least one is needed."""
        mean = self.log_probability
        return Changes(self.changed, self.fixed, self.broken, mean.mean, mean.ci95)


Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # columns and rows


def table_by_iteration(
    results: Mapping[int, Metrics], probabilities: Mapping[int, Probabilities], changes: Mapping[int, Changes]
) -> Table:
    """A row for each T; counts of changed labels and the change of the log-probability are since T = 1."""
    columns = ["T", "accuracy", "95 % interval", "log-prob", "since T = 1", "changed", "fixed", "broken", "ECE"]
    rows = []
    for iteration, metrics in results.items():
        of_probabilities, change = probabilities.get(iteration), changes.get(iteration)
        rows.append(
            [
                str(iteration),
                f"{metrics.accuracy:.1%}",
                "{:.1%} to {:.1%}".format(*metrics.ci95),
                f"{of_probabilities.log_probability:.3f}" if of_probabilities else "",
                *(_since_first(change, of_probabilities is not None) if change else [""] * 4),
                f"{of_probabilities.ece:.3f}" if of_probabilities else "",
                f"{metrics.accuracy_mean_per_token:.1%}",
                "" if metrics.macro_f1 is None else f"{metrics.macro_f1:.3f}",
                str(metrics.ties),
            ]
        )
    return [*columns, "mean/token", "macro-F1", "ties"], rows


def _since_first(changes: Changes, scored: bool) -> list[str]:
    counts = (changes.changed, changes.fixed, changes.broken)
    return [f"{changes.log_probability:+.3f}" if scored else "", *map(str, counts)]


def confusion_table(confusion: Mapping[str, Mapping[str, int]], metrics: Metrics) -> Table:
    """A row for each true label: the counts of predicted labels, then its precision, recall and F1."""
    rows = []
    for gold, counts in confusion.items():
        label = metrics.per_label.get(gold)
        scores = [""] * 3 if label is None else [f"{value:.3f}" for value in (label.precision, label.recall, label.f1)]
        rows.append([gold, *(str(counts[guess]) for guess in confusion), *scores])
    return ["true label", *confusion, "precision", "recall", "F1"], rows
