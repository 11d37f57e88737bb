"""The setting for labelled rows that are too few for a choice: a setting that needs no choice and seldom fails.

Plain in-context learning that prefers a label whatever the input fails for most inputs. A correction that is estimated
from texts without labels has no setting that rows could choose wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.tuning.options import Setting

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


def unchosen(settings: Sequence[Setting], found: Excess | None) -> int:
    """The setting to keep without a choice: plain in-context learning, corrected if it gives a label in excess.

    It stays uncorrected if no correction without labels was tried.
    """
    corrections = {each.calibration: number for number, each in enumerate(settings) if each.place == settings[0].place}
    tried = [corrections[name] for name in UNLABELLED if name in corrections]
    return tried[0] if tried and found is not None else 0
