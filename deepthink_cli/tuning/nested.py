"""Nested cross-validation of labelled rows: the chosen setting, and the test whether it is better beyond noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.registry import HEAD, NONE, calibration
from deepthink_cli.evaluation.metrics import Z95, wilson
from deepthink_cli.tuning.options import Setting

if TYPE_CHECKING:
    from numpy import bool_, int64
    from numpy.typing import NDArray

    from deepthink_cli.scoring.softmax import Floats

    Bools = NDArray[bool_]
    Ints = NDArray[int64]

HeldOut = tuple[int, ...]  # the folds whose rows a memory has not read: one fold, or two in increasing order


def held_out(count: int) -> list[HeldOut]:
    """The folds that each memory of a nested cross-validation leaves out: every fold, and every pair of folds."""
    return [*((fold,) for fold in range(count)), *combinations(range(count), 2)]


# The log-probabilities (selections, techniques, methods, T, N, C) of held-out rows: raw under `none`, and corrected
# under the name of each calibration whose bias was measured through the same memory.
# Under `states` are the hidden states (..., N, L, W), in float32, if a calibration by hidden states is tried.
HeldOutScores = Mapping[str, "Floats"]
STATES = "states"


def correctness(
    scores: HeldOutScores,
    gold: Ints,
    settings: Sequence[Setting],
    groups: Sequence[int] = (),
    parts: Sequence[Sequence[int]] = (),
    without: Sequence[HeldOutScores] | None = None,
) -> Bools:
    """Whether each setting labels each row correctly (S, N); `gold` (N,) are the indices of the true labels.

    A calibration that is not in `scores` estimates its bias from all rows without their labels. If it needs true
    labels, it is fitted for each of `parts`, which hold every row once, to the rows outside the part. Of these rows,
    `without` has the scores after memories that have not read the part; by default, their own `scores` are used.
    `groups` (N,) are the numbers of the inputs.
    """
    import numpy as np

    def labels(setting: Setting) -> Ints:
        place = setting.place
        if setting.calibration in scores:
            return np.asarray(scores[setting.calibration][place].argmax(axis=-1))
        method, raw = calibration(setting.calibration), scores[NONE][place]
        if not method.labelled:
            return np.asarray(method.fitted(raw).scores(None, raw).argmax(axis=-1))
        found = np.full(len(raw), -1)
        for number, part in enumerate(parts):
            own, rest = list(part), [row for row in range(len(gold)) if row not in set(part)]
            used = (NONE, STATES) if method.of_states else (NONE,)
            logs, *states = (
                scores[name][place][rest] if without is None else without[number][name][place] for name in used
            )
            fitted = method.fitted(logs, gold[rest].tolist(), [groups[row] for row in rest], *states)
            of_own = scores[STATES][place][own] if method.of_states else None
            found[own] = fitted.scores(of_own, raw[own]).argmax(axis=-1)
        return found

    return np.stack([labels(setting) == gold for setting in settings])


def first_choice(settings: Sequence[Setting]) -> int | None:
    """The setting that is preferred to others which are about as good: the head, after a single reading.

    On five tasks it was the best of the corrections (docs/predict.md); None if it was not tried.
    """
    of_plain = [each.calibration for each in settings if each.place == settings[0].place]
    return of_plain.index(HEAD) if HEAD in of_plain else None


def best(right: Bools, first: int | None = None) -> int:
    """The simplest setting within one standard error of the setting with the most rows right, from (S, n).

    The settings come simplest first, plain in-context learning before all; the setting `first`, if any, is preferred to
    all of them. A setting with fewer rows right than plain in-context learning is never chosen. This is the
    one-standard-error rule of Hastie et al. (2009, The Elements of Statistical Learning, section 7.10), with the error
    of the difference of paired rows, as in `Comparison.interval`.
    """
    import numpy as np

    most, rows = right[right.sum(axis=1).argmax()], right.shape[1] + 2
    lost, gained = (((each.sum(axis=1) + 1) / rows) for each in (most & ~right, ~most & right))
    error = np.sqrt((lost + gained - (lost - gained) ** 2) / rows)
    good = (lost - gained <= error) & (right.sum(axis=1) >= right[0].sum())
    return first if first is not None and good[first] else int(good.argmax())


def choose_nested(
    outer: Bools, inner: Sequence[Bools], folds: Sequence[Sequence[int]], first: int | None = None
) -> tuple[tuple[int, ...], Bools]:
    """The setting for each fold that is best on the other folds, and whether (N,) it labels the fold's rows right.

    `outer` (S, N): whether a row is right after a memory of all rows outside its fold. `inner[i]` (S, N - n_i): whether
    a row outside fold i, in order, is right after a memory of the rows outside fold i and outside its own fold.
    `first` is the preferred setting, as in `best`.
    """
    import numpy as np

    chosen, right = [], np.zeros(outer.shape[1], dtype=bool)
    for of_fold, rows in zip(inner, folds, strict=True):
        chosen.append(best(of_fold, first))
        right[list(rows)] = outer[chosen[-1], list(rows)]
    return tuple(chosen), right


LEVEL = 0.025  # the level of the one-sided test
FEWEST_ROWS = math.ceil(-math.log2(LEVEL))  # with fewer, no result is beyond noise


@dataclass(frozen=True)
class Comparison:
    """The same held-out rows labelled by the settings that were chosen without them, and by plain in-context learning.

    `right` and `plain` count the rows that each labels correctly. `gained` counts the rows that only the chosen
    settings label correctly, `lost` the rows that only plain in-context learning does.
    """

    rows: int
    right: int
    plain: int
    gained: int
    lost: int

    @classmethod
    def of(cls, chosen: Sequence[bool], plain: Sequence[bool]) -> Comparison:
        """Compare two labellings, each given as whether it is right, row by row."""
        pairs = [(bool(first), bool(second)) for first, second in zip(chosen, plain, strict=True)]
        right, before = (sum(answers) for answers in zip(*pairs, strict=True))
        return cls(len(pairs), right, before, pairs.count((True, False)), pairs.count((False, True)))

    @property
    def accuracy(self) -> float:
        """The share of rows that the chosen settings label correctly."""
        return self.right / self.rows

    @property
    def baseline(self) -> float:
        """The share of rows that plain in-context learning labels correctly."""
        return self.plain / self.rows

    @property
    def difference(self) -> float:
        """The accuracy less the baseline."""
        return (self.gained - self.lost) / self.rows

    @property
    def p(self) -> float:
        """The p-value of the sign test (`sign_test`)."""
        return sign_test(self.gained, self.lost)

    @property
    def beyond_noise(self) -> bool:
        """Whether the chosen settings are better than plain in-context learning, p < 0.025."""
        return self.p < LEVEL

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference, of paired rows (Bonett and Price 2012, adjusted Wald).

        A row is added to the gained rows and to the lost rows, so that the interval has a width also if no row differs.
        """
        gained, lost = ((count + 1) / (self.rows + 2) for count in (self.gained, self.lost))
        spread = Z95 * math.sqrt((gained + lost - (gained - lost) ** 2) / (self.rows + 2))
        return max(-1.0, gained - lost - spread), min(1.0, gained - lost + spread)

    @property
    def rows_to_show(self) -> int | None:
        """The number of rows of which the sign test is expected to show the same gain; None without a gain.

        The smallest number for which McNemar's test with continuity correction has p = 0.025, at the same rates of
        gained and lost rows.
        """
        if (gain := self.gained - self.lost) <= 0:
            return None
        spread = Z95 * math.sqrt(self.gained + self.lost)
        times = ((spread + math.sqrt(spread**2 + 4 * gain)) / (2 * gain)) ** 2
        return max(self.rows, math.ceil(times * self.rows))

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "rows": self.rows,
            "accuracy": self.accuracy,
            "ci95": wilson(self.accuracy, self.rows),
            "plain": self.baseline,
            "plain_ci95": wilson(self.baseline, self.rows),
            "difference": self.difference,
            "difference_ci95": self.interval,
            "gained": self.gained,
            "lost": self.lost,
            "p": self.p,
        }


def sign_test(gained: int, lost: int) -> float:
    """The exact one-sided p-value: the probability of `gained` or more, if a discordant row is gained with 1/2.

    1 if no row is discordant.
    """
    count = gained + lost
    return sum(math.comb(count, more) for more in range(gained, count + 1)) / (1 << count)


UNLABELLED = ("contextual", "domain")  # corrections without labels, the preferred one first
LARGE = 3  # an excess of one row in so many is large, however frequent the label


@dataclass(frozen=True)
class Excess:
    """A label that is given to many more held-out rows than have it, with both counts."""

    label: str
    given: int
    true: int


def excess(given: Sequence[str], true: Sequence[str]) -> Excess | None:
    """The label with the largest excess of rows that are given it over rows that have it; None if it is small.

    It is large if the label is given to twice as many rows as have it, or if the excess is a third of all rows. The
    second rule is for a label that half of the rows have, which cannot be given to more than twice as many.
    """
    answers, rows = Counter(given), Counter(true)
    label = max(rows, key=lambda each: answers[each] - rows[each])
    beyond = answers[label] - rows[label]
    return Excess(label, answers[label], rows[label]) if beyond >= min(rows[label], len(true) / LARGE) else None


def unchosen(settings: Sequence[Setting], found: Excess | None, right: Sequence[int]) -> int:
    """The setting to keep without a choice: plain in-context learning, corrected if it gives a label in excess.

    `right` counts the rows that each setting labels correctly. It stays uncorrected if no correction without labels was
    tried that labels as many rows correctly as without it.
    """
    corrections = {each.calibration: number for number, each in enumerate(settings) if each.place == settings[0].place}
    tried = [corrections[name] for name in UNLABELLED if name in corrections]
    good = [number for number in tried if right[number] >= right[0]]
    return good[0] if good and found is not None else 0
