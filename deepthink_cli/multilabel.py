"""Rows with several labels: the labels that a row gets, the metrics of sets of labels, and a threshold for each label.

A row gets a label if the label's share among the candidates exceeds its threshold. The best threshold has the best F1
of its label (SCut: Yang 2001, A study on thresholding strategies for text categorization). The threshold is the mean of
the best thresholds over the training parts of a cross-validation (Fan and Lin 2007, A study on threshold selection for
multi-label classification).

With a head, the share of a label does not depend on the other labels: with the head of two labels, y and not y, that
`discriminants` fits to hidden states alone,

    score(y) = score of y - score of not y,    share(y) = 1 / (1 + exp(-score(y))).

The thresholds are then fitted to shares of rows that the head has not seen.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.discriminants import discriminants
from deepthink_cli.calibration.registry import HEAD
from deepthink_cli.corrections import Head, Thresholds
from deepthink_cli.data.same_input import FOLDS, SEED, input_groups, parted
from deepthink_cli.errors import InputError, option
from deepthink_cli.provenance import Provenance
from deepthink_cli.scoring.heads import LinearHead
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import Scoring, check_stored
from deepthink_cli.scoring.softmax import logistic, shares

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from deepthink_cli.scoring.softmax import Floats

    Bools = NDArray[bool_]

GiveLabels = Callable[[Prediction], tuple[str, ...]]
LEAST = 2  # inputs with a label, and without it, for a head


def has_several(provenance: Provenance) -> bool:
    """Whether the demonstrations of a memory may have several labels each."""
    return provenance.demonstrations.template.label_separator is not None


def label_shares(prediction: Prediction) -> dict[str, float]:
    """The share of each label among the labels of a prediction; by a head, whatever the other labels are."""
    if prediction.by_head is not None:
        return {label: logistic(score) for label, score in prediction.by_head.items()}
    return dict(zip(prediction.scores, shares(list(prediction.scores.values())), strict=True))


def labels_given(provenance: Provenance, scoring: Scoring, name: str) -> GiveLabels:
    """The labels that a prediction gives, which may be none, in the order of its candidates.

    A label's share exceeds the threshold that the memory `name` stores for the iteration, or 1 / C. Raises InputError
    for thresholds of another scoring.
    """
    stored = provenance.thresholds
    if stored is not None:
        used, how = scoring.correctable, " ROWS"
        if stored.head is not None:
            used, how = scoring.of_states, f" ROWS {option('calibrate')} head"
        check_stored(stored.scoring, used, "the set of thresholds", name, how)

    def given(prediction: Prediction) -> tuple[str, ...]:
        found = label_shares(prediction)
        least = dict.fromkeys(found, 1 / len(found)) if stored is None else stored.at[str(prediction.iteration)]
        return tuple(label for label, share in found.items() if share > least[label])

    return given


@dataclass(frozen=True)
class LabelMetrics:
    """Precision, recall and F1 of a label, and the number of rows with this true label."""

    precision: float
    recall: float
    f1: float
    support: int

    @classmethod
    def of(cls, right: int, given: int, support: int) -> LabelMetrics:
        """Of rows that have and get the label, that get it, and that have it; 0 where none are counted."""
        precision = right / given if given else 0.0
        recall = right / support if support else 0.0
        f1 = 2 * right / (given + support) if given + support else 0.0
        return cls(precision, recall, f1, support)


@dataclass
class LabelSets:
    """Running counts of true and given sets of labels, in constant memory.

    `macro_f1` is the mean F1 over all labels, 0 for a label that occurs nowhere; `micro_f1` is the F1 of summed counts.
    """

    labels: Sequence[str]
    n: int = 0
    same: int = 0
    right: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    support: Counter[str] = field(default_factory=Counter)

    def add(self, true: AbstractSet[str], given: AbstractSet[str]) -> None:
        """Count one row."""
        self.n += 1
        self.same += true == given
        self.right.update(true & given)
        self.given.update(given)
        self.support.update(true)

    def of(self, label: str) -> LabelMetrics:
        """The metrics of one label."""
        return LabelMetrics.of(self.right[label], self.given[label], self.support[label])

    @property
    def subset_accuracy(self) -> float:
        """The share of rows that get exactly their true labels."""
        return self.same / self.n

    @property
    def micro_f1(self) -> float:
        """F1 of the counts of all labels together."""
        return LabelMetrics.of(self.right.total(), self.given.total(), self.support.total()).f1

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels."""
        return fmean(self.of(label).f1 for label in self.labels)

    def as_json(self) -> dict[str, Any]:
        """The metrics as JSON values."""
        return {
            "micro_f1": self.micro_f1,
            "macro_f1": self.macro_f1,
            "subset_accuracy": self.subset_accuracy,
            "per_label": {label: asdict(self.of(label)) for label in self.labels},
        }


def best_threshold(values: Sequence[float], true: Sequence[bool]) -> float:
    """The threshold with the best F1 of a label; the largest of several.

    `values` are the label's shares in rows, `true` whether the rows have the label. The threshold is halfway between
    two shares; 0, so that every row gets the label, or 1, so that no row gets it, if no row has it.
    """
    ordered = sorted(zip(values, true, strict=True), reverse=True)
    support, right, best, threshold = sum(true), 0, 0.0, 1.0
    for given, (share, has) in enumerate(ordered, start=1):
        right += has
        following = ordered[given][0] if given < len(ordered) else 0.0
        f1 = 2 * right / (given + support)
        if f1 > best and share > following:
            best, threshold = f1, (share + following) / 2 if given < len(ordered) else 0.0
    return threshold


def fitted(rows: Sequence[tuple[Mapping[str, float], AbstractSet[str]]], labels: Iterable[str]) -> dict[str, float]:
    """The best threshold of each label for the shares and true labels of rows."""
    return {
        label: best_threshold([share[label] for share, _ in rows], [label in true for _, true in rows])
        for label in labels
    }


def cross_validated(
    rows: Sequence[tuple[Mapping[str, float], AbstractSet[str]]], labels: Sequence[str], groups: Sequence[int]
) -> tuple[dict[str, float], LabelSets]:
    """The mean threshold of each label over the folds, and the labels of each fold by the thresholds of the others.

    `groups` are the numbers of the rows' inputs (`input_groups`); the rows of one input are in one fold.
    """
    inputs = max(groups) + 1
    order = random.Random(SEED).sample(range(inputs), inputs)
    found, judged = list[dict[str, float]](), LabelSets(labels)
    for fold in range(FOLDS):
        inside = set(order[fold::FOLDS])
        held_out = {place for place, number in enumerate(groups) if number in inside}
        least = fitted([row for place, row in enumerate(rows) if place not in held_out], labels)
        found.append(least)
        for share, true in (rows[place] for place in sorted(held_out)):
            judged.add(true, {label for label in labels if share[label] > least[label]})
    return {label: fmean(each[label] for each in found) for label in labels}, judged


def thresholds_of(
    rows: Sequence[Sequence[Prediction]],
    provenance: Provenance,
    source: str,
    scoring: Scoring,
    layers: Sequence[int] = (),
) -> Thresholds:
    """The thresholds that labelled rows give, which were observed after T = 1 and the kept iterations of a memory.

    `source` names the file of the rows. With `layers`, the thresholds are of the shares of a head of the hidden states
    after them. Raises InputError for too few rows, and for labels that no row has.
    """
    template, labels = provenance.demonstrations.template, provenance.demonstrations.labels
    queries = [each.query for each in rows[0]] if rows else []
    groups = input_groups(queries, template, labels)
    true = [frozenset(template.labels_of(query.gold or "")) for query in queries]
    heads, measured = None, [[label_shares(each) for each in of_memory] for of_memory in rows]
    if layers:
        heads, measured = _by_heads(rows, layers, true, groups, labels, source)
    if len(set(groups)) < 4 * FOLDS:
        raise InputError(
            f"{source}: {len(set(groups))} different rows that the memory has not read; thresholds need {4 * FOLDS}"
        )
    for label in labels:
        if not any(label in of_row for of_row in true):
            raise InputError(f"{source}: no row has the label {label!r}; thresholds need rows of every label")
    found = {
        str(of_memory[0].iteration): cross_validated(list(zip(each, true, strict=True)), labels, groups)
        for of_memory, each in zip(rows, measured, strict=True)
    }
    *_, (_, judged) = found.values()
    return Thresholds(
        scoring.of_states if layers else scoring.correctable,
        {iteration: least for iteration, (least, _) in found.items()},
        len(queries),
        FOLDS,
        source,
        judged.micro_f1,
        judged.macro_f1,
        judged.subset_accuracy,
        heads,
    )


def _by_heads(
    rows: Sequence[Sequence[Prediction]],
    layers: Sequence[int],
    true: Sequence[AbstractSet[str]],
    groups: Sequence[int],
    labels: Sequence[str],
    source: str,
) -> tuple[dict[str, Head], list[list[dict[str, float]]]]:
    """The head of each iteration, and the shares of each row's labels by heads that have not seen the row.

    Raises InputError, naming the `source` of the rows, for a label that too few inputs have, or do not have.
    """
    import numpy as np

    has_NC = np.array([[label in of_row for label in labels] for of_row in true]).reshape(-1, len(labels))
    for label, of_label in zip(labels, has_NC.T, strict=True):
        for side, words in ((True, "with"), (False, "without")):
            inputs = {group for group, own in zip(groups, of_label, strict=True) if own == side}
            if len(inputs) < LEAST:
                raise InputError(
                    f"{source}: inputs {words} the label {label!r}: {len(inputs)}; {HEAD} needs {LEAST}, give more"
                )
    heads, measured = dict[str, Head](), list[list[dict[str, float]]]()
    for of_memory in rows:
        states, scores = (
            np.stack([each.states for each in of_memory if each.states is not None]),
            np.zeros(has_NC.shape),
        )
        head = each_against_rest(states, has_NC, groups)
        heads[str(of_memory[0].iteration)] = head.stored(layers, labels, apart=True)
        for own, rest in parted([""] * len(has_NC), groups):
            unseen = each_against_rest(states[rest], has_NC[rest], [groups[row] for row in rest])
            scores[own] = unseen.scores(states[own], scores[own])
        measured.append([dict(zip(labels, map(logistic, each), strict=True)) for each in scores.tolist()])
    return heads, measured


def each_against_rest(states: Floats, has: Bools, groups: Sequence[int]) -> LinearHead:
    """The head of hidden states (n, L, W) of rows; `has` (n, C) says whether a row has a label."""
    import numpy as np

    nothing = np.zeros((len(has), 2))  # label scores that say nothing
    heads = [discriminants(states, nothing, of_label.astype(int).tolist(), groups) for of_label in has.T]
    weights = np.stack([head.weights[1] - head.weights[0] for head in heads])
    return LinearHead(weights, np.stack([head.bias[1] - head.bias[0] for head in heads]))
