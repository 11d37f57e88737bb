"""Figures of labelled rows by T: accuracy with its interval, F1, ties, calibration error, changes since T = 1."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import eq, sub
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.bounded import Probable
from deepthink_cli.multilabel import LabelMetrics
from deepthink_cli.scoring.softmax import log_share

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction

Z95 = 1.959963984540054  # the normal distribution's 97.5 % point
BINS = 10  # bins of equal width for the expected calibration error
_EDGES = tuple(number / BINS for number in range(1, BINS))
COUNTS = ("changed", "fixed", "broken")
SHARES = (0.25, 0.5, 0.75, 0.9, 1.0)  # of the rows, of which the most probable labels are counted


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


class Answers:
    """The answers of one iteration to rows with true labels, in a few numbers a row.

    `labels` are the label words of all rows; empty if every row has its own candidates. `log_probabilities` are of the
    true labels, in nats, `probabilities` of the labels that are given, and `chances` of a guess among the candidates;
    generated answers have none of these.
    """

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.labels, self.ties = tuple(labels), 0
        self.gold, self.given, self.given_by_mean = list[str](), list[str](), list[str]()
        self.log_probabilities, self.probabilities, self.chances = array("d"), array("d"), array("d")

    def add(self, prediction: Prediction) -> None:
        """Add the answer to a row, whose query must have a true label."""
        gold, scores = prediction.query.gold, prediction.scores
        assert gold is not None
        self.gold.append(gold)
        self.given.append(prediction.label)
        self.given_by_mean.append(prediction.label_mean_per_token)
        self.ties += prediction.tied
        if scores:
            self.log_probabilities.append(log_share(scores[gold], scores.values()))
            self.probabilities.append(prediction.probability)
            self.chances.append(1 / len(scores))

    @property
    def chance(self) -> float:
        """The mean accuracy of a guess among the candidates."""
        return fmean(self.chances or [0.0])

    def confusion(self) -> dict[str, dict[str, int]]:
        """{true label: {given label: count}}, in the order of the labels; empty if rows have their own candidates."""
        if not self.labels:
            return {}
        counts = Counter(zip(self.gold, self.given, strict=True))
        order = [*self.labels, *sorted({*self.gold, *self.given} - {*self.labels})]
        return {gold: {given: counts[gold, given] for given in order} for gold in order}

    def metrics(self) -> Metrics:
        """The agreement with the true labels; at least one row is needed."""
        rows, confusion = len(self.gold), self.confusion()
        accuracy, by_mean = (sum(map(eq, self.gold, answers)) / rows for answers in (self.given, self.given_by_mean))
        predicted = {label: sum(row[label] for row in confusion.values()) for label in confusion}
        per_label = {
            label: LabelMetrics.of(row[label], predicted[label], sum(row.values()))
            for label, row in confusion.items()
            if predicted[label] or any(row.values())
        }
        return Metrics(
            accuracy=accuracy,
            stderr=math.sqrt(accuracy * (1 - accuracy) / rows),
            ci95=wilson(accuracy, rows),
            accuracy_mean_per_token=by_mean,
            macro_f1=sum(label.f1 for label in per_label.values()) / len(per_label) if per_label else None,
            ties=self.ties,
            per_label=per_label,
            predicted={label: predicted[label] for label in per_label},
        )

    def majority(self) -> tuple[str, float] | None:
        """The most frequent true label, the first of several, and the accuracy of this answer to every row."""
        if not self.labels:
            return None
        true = {label: sum(row.values()) for label, row in self.confusion().items()}
        label = max(true, key=lambda each: true[each])
        return label, true[label] / len(self.gold)

    def quality(self) -> Probabilities:
        """The quality of the probabilities; at least one row with probabilities is needed."""
        excess = [0.0] * BINS  # for each bin, the sum over rows of probability - (1 if right else 0)
        for gold, given, probability in zip(self.gold, self.given, self.probabilities, strict=True):
            excess[bisect_left(_EDGES, probability)] += probability - (gold == given)
        ece = sum(map(abs, excess)) / len(self.gold)
        return Probabilities(fmean(self.log_probabilities), mean_ci95(self.log_probabilities), ece)

    def changes_since(self, first: Answers) -> Changes:
        """The changes since other answers to the same rows, in the same order."""
        differences = list(map(sub, self.log_probabilities, first.log_probabilities))
        return changes(self.gold, first.given, self.given, differences)

    def at_least(self, threshold: float, max_error: float | None = None) -> Probable:
        """The labels with a probability of at least `threshold`, and the wrong labels among them."""
        rows = zip(self.gold, self.given, self.probabilities, strict=True)
        wrong = [gold != given for gold, given, probability in rows if probability >= threshold]
        return Probable(threshold, len(wrong), sum(wrong), len(self.gold), max_error)

    def probable(self) -> list[Probable]:
        """The labels of each of `SHARES` of the rows, with all labels as probable as the last of them."""
        ordered = sorted(self.probabilities, reverse=True)
        thresholds = [ordered[math.ceil(share * len(ordered)) - 1] for share in SHARES if ordered]
        return [self.at_least(threshold) for threshold in dict.fromkeys(thresholds)]


def changes(gold: Sequence[str], first: Sequence[str], later: Sequence[str], differences: Sequence[float]) -> Changes:
    """The changes from the labels `first` to `later`; `differences` are of the true labels' log-probabilities.

    Generated answers have no differences.
    """
    rows = list(zip(gold, first, later, strict=True))
    return Changes(
        changed=sum(before != after for _, before, after in rows),
        fixed=sum(before != true == after for true, before, after in rows),
        broken=sum(before == true != after for true, before, after in rows),
        log_probability=fmean(differences) if differences else 0.0,
        log_probability_ci95=mean_ci95(differences),
    )


def mean_ci95(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval for the mean; None for fewer than two numbers."""
    import numpy as np
    from scipy.special import stdtrit

    if len(values) < 2:
        return None
    mean, half = fmean(values), float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean - half, mean + half


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of n (Wilson 1927, eq. 2)."""
    centre = share + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p of McNemar's test (1947): a binomial test, with probability 1/2, of rows gained and lost.

    `gained` and `lost` count the rows that only one of two labellings gets right.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))


ALPHA = 0.05  # chance does not explain a difference with a smaller p


def by_chance(p: float) -> str:
    """Whether chance explains a difference, and the p of McNemar's exact test."""
    return f"{'within' if p >= ALPHA else 'beyond'} chance (p = {p:.2g})"


Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # columns and rows


def confusion_table(confusion: Mapping[str, Mapping[str, int]], metrics: Metrics) -> Table:
    """A row for each true label: the counts of predicted labels, then its precision, recall and F1."""
    rows = []
    for gold, counts in confusion.items():
        label = metrics.per_label.get(gold)
        scores = [""] * 3 if label is None else [f"{value:.3f}" for value in (label.precision, label.recall, label.f1)]
        rows.append([gold, *(str(counts[guess]) for guess in confusion), *scores])
    return ["true label", *confusion, "precision", "recall", "F1"], rows


@dataclass(frozen=True)
class Evaluation:
    """The metrics of every iteration, and the confusion table of the last one.

    `changes` are the changes of later iterations since T = 1; empty if T = 1 was not evaluated. Free answers have no
    `probabilities`, and their changes have no log-probability. `calibrated` has the evaluation of the corrected
    predictions for every calibration.
    """

    n: int
    results: dict[int, Metrics]
    majority: tuple[str, float] | None
    chance: float
    confusion: dict[str, dict[str, int]]
    probabilities: dict[int, Probabilities]
    changes: dict[int, Changes]
    calibrated: Mapping[str, Evaluation] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Mapping[int, Answers], calibrated: Mapping[str, Evaluation] | None = None) -> Evaluation:
        """The evaluation of the answers of every iteration, in the order of the iterations."""
        first, last = min(answers), answers[max(answers)]
        return cls(
            n=len(last.gold),
            results={iteration: each.metrics() for iteration, each in answers.items()},
            majority=last.majority(),
            chance=last.chance,
            confusion=last.confusion(),
            probabilities={iteration: each.quality() for iteration, each in answers.items() if each.probabilities},
            changes={t: each.changes_since(answers[1]) for t, each in answers.items() if first == 1 < t},
            calibrated=calibrated or {},
        )

    @property
    def last(self) -> Metrics:
        """The metrics of the last iteration."""
        return self.results[max(self.results)]

    @property
    def true_labels(self) -> dict[str, int]:
        """The number of rows with each true label; empty if every row has its own candidates."""
        return {label: sum(row.values()) for label, row in self.confusion.items()}

    def table(self) -> Table:
        """A row for each T; counts of changed labels and the change of the log-probability are since T = 1."""
        columns = ["T", "accuracy", "95 % interval", "log-prob", "since T = 1", "changed", "fixed", "broken", "ECE"]
        rows = []
        for iteration, metrics in self.results.items():
            of_probabilities, change = self.probabilities.get(iteration), self.changes.get(iteration)
            rows.append(
                [
                    str(iteration),
                    f"{metrics.accuracy:.1%}",
                    "{:.1%} to {:.1%}".format(*metrics.ci95),
                    f"{of_probabilities.log_probability:.3f}" if of_probabilities else "",
                    f"{change.log_probability:+.3f}" if change and of_probabilities else "",
                    *(map(str, (change.changed, change.fixed, change.broken)) if change else [""] * 3),
                    f"{of_probabilities.ece:.3f}" if of_probabilities else "",
                    f"{metrics.accuracy_mean_per_token:.1%}",
                    "" if metrics.macro_f1 is None else f"{metrics.macro_f1:.3f}",
                    str(metrics.ties),
                ]
            )
        return [*columns, "mean/token", "macro-F1", "ties"], rows

    def _repr_html_(self) -> str:
        """A table for each way of scoring, for notebooks."""
        from pandas import DataFrame

        shown = []
        for by, each in (("", self), *((f", {name} calibration", each) for name, each in self.calibrated.items())):
            columns, rows = each.table()
            shown += [f"<p>{self.n:,} rows{by}</p>", DataFrame(rows, columns=columns).to_html(index=False)]
        return "\n".join(shown)

    def as_json(self) -> dict[str, Any]:
        """The part of `eval --json` that depends on the predictions."""
        majority = None if self.majority is None else {"label": self.majority[0], "accuracy": self.majority[1]}
        results = [{"iteration": t, **self._metrics(t)} for t in self.results]
        for each in results if self.calibrated else ():
            each["calibrated"] = {name: way._metrics(each["iteration"]) for name, way in self.calibrated.items()}
        return {
            "n": self.n,
            "results": results,
            "majority": majority,
            "chance": self.chance,
            "confusion": self.confusion,
            "true_labels": self.true_labels,
        }

    def _metrics(self, iteration: int) -> dict[str, Any]:
        changes, quality = self.changes.get(iteration), self.probabilities.get(iteration)
        since = None if changes is None else asdict(changes)
        if since is not None and quality is None:
            since = {name: since[name] for name in COUNTS}
        return {**asdict(self.results[iteration]), **(asdict(quality) if quality else {}), "changes": since}
