"""The labels that are given, of which at most some share is wrong: selective classification with a bounded error.

A label is given if its probability is at least a threshold. The threshold is chosen on labelled rows that are scored as
new rows are: each by a correction that is fitted to the rows of other folds. Of the k most probable labels, j are
wrong. For a bound r and k_j, the least k for which so few wrong labels would be surprising if more than r of such
labels were wrong,

    P(Binomial(k_j, r) <= j) <= 0.05    (Clopper and Pearson 1934),

the counts k_0 < k_1 < ..., and at last the number of rows, are tested in turn until one has more than j wrong labels.
The first is the last one that is at most a third of the rows, for few labels prove little. The threshold is that of the
last count that passed. So with 95 % confidence at most r of the given labels are wrong, for rows like those, drawn
independently, and where errors do not become rarer as probabilities fall (fixed-sequence testing: Angelopoulos et al.
2021, Learn then Test; selective classification: Geifman and El-Yaniv 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.registry import Calibration
from deepthink_cli.corrections import HeldOut
from deepthink_cli.data.same_input import parted
from deepthink_cli.scoring.softmax import softmax

if TYPE_CHECKING:
    from deepthink_cli.calibration.discriminants import Unlabelled
    from deepthink_cli.scoring.softmax import Floats

LEVEL = 0.05
FIRST = 1 / 3  # of the rows: the most labels that are tested first
SHOWN = (0.01, 0.05, 0.1)  # bounds of which people are told
_DIGITS = 6


@dataclass(frozen=True)
class Probable:
    """The `given` labels with a probability of at least `threshold`, and how many of them are `wrong`, of `rows`.

    With `max_error`, labelled rows show that at most this share of such labels is wrong.
    """

    threshold: float
    given: int
    wrong: int
    rows: int
    max_error: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The share of rows that are given a label, or the bound of errors, and the counts, as JSON values."""
        share = {"coverage": self.given / self.rows} if self.max_error is None else {"max_error": self.max_error}
        return {**share, "threshold": self.threshold, "labelled": self.given, "wrong": self.wrong}


def fewest(most: float) -> int:
    """The number of labels without an error from which at most the share `most` is known to be wrong."""
    return math.ceil(math.log(LEVEL) / math.log1p(-most))


def bound(rows: HeldOut, most: float) -> Probable | None:
    """The lowest threshold above which at most the share `most` of labels is wrong; None if the rows show none."""
    labels = sorted(((p, right) for right, of in ((1, rows.right), (0, rows.wrong)) for p in of), reverse=True)
    found, wrong, done = None, 0, 0
    counts = list(_counts(most, len(labels)))
    first = max(sum(count <= len(labels) * FIRST for _, count in counts), 1) - 1
    for allowed, count in counts[first:]:
        while count < len(labels) and labels[count][0] == labels[count - 1][0]:  # all labels of one probability
            count += 1
        wrong += sum(1 - right for _, right in labels[done:count])
        if wrong > allowed:
            break
        found, done = Probable(labels[count - 1][0], count, wrong, len(labels), most), count
    return found


def described(rows: HeldOut) -> str:
    """The share of rows that can be labelled with few errors, in words."""
    count, parts = len(rows.right) + len(rows.wrong), []
    for most in SHOWN:
        found = bound(rows, most)
        if found is not None:
            parts.append(f"{found.given / count:.0%} of rows with at most {most:.0%} wrong")
        elif count < fewest(most):
            parts.append(f"{most:.0%} needs at least {fewest(most)} labelled rows")
        else:
            parts.append(f"none with at most {most:.0%}")
    return "; ".join(parts)


def _counts(most: float, rows: int) -> Iterator[tuple[int, int]]:
    """j and k_j for every k_j up to the number of rows, and the number of rows with the last of these j."""
    from scipy.special import bdtr

    count = fewest(most)
    for allowed in range(rows):
        while count <= rows and bdtr(allowed, count, most) > LEVEL:
            count += 1
        if count > rows:
            if allowed:
                yield allowed - 1, rows
            return
        yield allowed, count


def cross_validated(
    method: Calibration,
    logs: Floats,
    gold: Sequence[int],
    groups: Sequence[int],
    states: Floats | None = None,
    unlabelled: Unlabelled | None = None,
) -> Floats:
    """The corrected scores (n, C) of rows by a calibration that is fitted to the rows of other folds.

    `logs` (n, C) are the labels' log-probabilities, `gold` (n,) the places of the true labels, `groups` (n,) the
    numbers of the inputs, and `states` (n, L, W) the hidden states, which a calibration of them needs. `unlabelled` are
    more rows of every fit.
    """
    import numpy as np

    found = np.zeros(np.shape(logs))
    for own, rest in parted([str(label) for label in gold], groups):
        of_own, of_rest = (None if states is None else states[rows] for rows in (own, rest))
        known, inputs = ([each[row] for row in rest] for each in (gold, groups))
        fitted = method.fitted(logs[rest], known, inputs, of_rest, unlabelled)
        found[own] = fitted.scores(of_own, logs[own])
    return found


def held_out(
    method: Calibration,
    logs: Floats,
    gold: Sequence[int],
    groups: Sequence[int],
    states: Floats | None = None,
    unlabelled: Unlabelled | None = None,
) -> HeldOut:
    """The probabilities of labels that a calibration gives inputs whose fold it has not seen.

    The arguments are those of `cross_validated`. Of the rows of one input the first counts.
    """
    import numpy as np

    _, first = np.unique(np.asarray(groups), return_index=True)
    found = cross_validated(method, logs, gold, groups, states, unlabelled)
    shares, places = softmax(found[first]), np.asarray(gold)[first]
    best = np.floor(shares.max(axis=1) * 10**_DIGITS) / 10**_DIGITS  # a label with this probability is not below it
    right = shares.argmax(axis=1) == places
    return HeldOut(*(tuple(sorted(best[which].tolist(), reverse=True)) for which in (right, ~right)))
