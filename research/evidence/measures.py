"""Measures of the scores of one task and seed, before and after: are more labels right, and are they told apart better?

- *accuracy* by the scores as they are;
- *matched*: before, a constant for each label gives every label as often as after. What remains of the difference is
  not a difference of how often labels are given;
- *fitted*: a bias of each label, fitted on the dev rows, is taken off on both sides (`--calibrate fitted`);
- *pairs*: the area under the ROC curve between two labels, mean over pairs of labels. No constants change it. Labels
  that one side does not score are left out;
- *AUC*: the area under the ROC curve of one label against the rest, mean over labels. The predictions for a second
  model were made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.scoring.softmax import log_softmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Part = Literal["test", "dev"]
AUC = "AUC"


@dataclass(frozen=True, eq=False)
class Scores:
    """Log-probabilities [n, C] over the labels, and the place [n] of the true one."""

    labels: tuple[str, ...]
    logs: Floats
    gold: Ints

    @property
    def given(self) -> Ints:
        """The place [n] of the label that is given; the first one of a tie."""
        return np.asarray(self.logs.argmax(axis=1), dtype=np.int64)

    @property
    def right(self) -> Bools:
        """Whether it is the true one [n]."""
        found: Bools = self.given == self.gold
        return found


Parts = Mapping[Part, Scores]  # of the test rows; of the dev rows, unless a correction was fitted on them


def without_bias(parts: Parts) -> Scores:
    """Scores of test rows without a bias of each label, which is fitted on the dev rows, if there are any."""
    test, dev = parts["test"], parts.get("dev")
    if dev is None:
        return test
    corrected = CALIBRATIONS["fitted"].fitted(dev.logs, dev.gold.tolist()).scores(None, test.logs)
    return replace(test, logs=log_softmax(corrected))


def after_batch(scores: Scores) -> Scores:
    """Scores after batch calibration, which sees all test rows and no label."""
    return replace(
        scores, logs=log_softmax(np.asarray(CALIBRATIONS["batch"].fitted(scores.logs).scores(None, scores.logs)))
    )


def matched_labels(logs: Floats, counts: Ints) -> Ints:
    """The labels (n,) of scores plus one constant for each label, such that each is given `counts` times.

    They are the assignment of labels to rows with the largest sum of scores: its dual variables are the constants.
    """
    columns = np.repeat(np.arange(len(counts)), counts)
    _, places = linear_sum_assignment(logs[:, columns], maximize=True)
    return np.asarray(columns[places], dtype=np.int64)


def pairwise_areas(logs: Floats, gold: Ints, labels: Sequence[int]) -> Floats:
    """The area between two labels, mean over the pairs of these, as the mean of a value for each row [n].

    Rows of neither label have the area itself, and pairs with a label that is true of no row are left out.
    """
    found = []
    for one, other in combinations([label for label in labels if (gold == label).any()], 2):
        rows = (gold == one) | (gold == other)
        inside = _area(logs[rows, one] - logs[rows, other], gold[rows] == one)
        values = np.full(len(gold), inside.mean())
        values[rows] += (inside - inside.mean()) * len(gold) / rows.sum()
        found.append(values)
    return np.mean(found, axis=0)


def _area(scores: Floats, true: Bools) -> Floats:
    """How often a true row has the higher score, ties a half: the area plus what each row changes in it.

    The variance of their mean is that of DeLong et al. (1988), but for a factor of n / (n - 1) of each kind of rows.
    """
    above = (scores[true][:, None] > scores[~true]) + 0.5 * (scores[true][:, None] == scores[~true])
    area, values = above.mean(), np.empty(len(scores))
    values[true] = area + (above.mean(axis=1) - area) / true.mean()
    values[~true] = area + (above.mean(axis=0) - area) / (1 - true.mean())
    return values


def _accuracy(before: Parts, after: Parts) -> tuple[Bools, Bools]:
    return before["test"].right, after["test"].right


def _matched(before: Parts, after: Parts) -> tuple[Bools, Bools]:
    first, last = before["test"], after["test"]
    counts = np.bincount(last.given, minlength=len(last.labels))
    return matched_labels(first.logs, counts) == first.gold, last.right


def _fitted(before: Parts, after: Parts) -> tuple[Bools, Bools]:
    return without_bias(before).right, without_bias(after).right


def _pairs(before: Parts, after: Parts) -> tuple[Floats, Floats]:
    first, last = before["test"], after["test"]
    known = np.isfinite(first.logs).all(axis=0) & np.isfinite(last.logs).all(axis=0)
    labels = [int(label) for label in np.flatnonzero(known)]
    return pairwise_areas(first.logs, first.gold, labels), pairwise_areas(last.logs, last.gold, labels)


def _against_the_rest(before: Parts, after: Parts) -> tuple[Floats, Floats]:
    first, last = before["test"], after["test"]
    labels = [int(label) for label in np.unique(first.gold)]
    values = (
        np.mean([_area(scores.logs[:, label], scores.gold == label) for label in labels], axis=0)
        for scores in (first, last)
    )
    return next(values), next(values)


def _batch(before: Parts, after: Parts) -> tuple[Bools, Bools]:
    return after_batch(before["test"]).right, after_batch(after["test"]).right


# Each gives a value for every test row [n] before and after, whose means are the measure.
MEASURES: dict[str, Callable[[Parts, Parts], tuple[Bools | Floats, Bools | Floats]]] = {
    "accuracy": _accuracy,
    "matched": _matched,
    "after a fitted bias": _fitted,
    "pairs": _pairs,
    "after batch calibration": _batch,
    AUC: _against_the_rest,
}
