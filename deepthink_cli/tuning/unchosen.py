"""What is kept where labelled rows are too few to choose with: what needs no choice and is least likely to fail.

Plain in-context learning that prefers a label whatever the input is fails for most inputs. A correction that is
estimated from texts without labels has no setting that rows could choose wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.tuning.options import Setting

UNLABELLED = ("contextual", "domain")  # corrections without labels, the one to prefer first
LARGE = 3  # one row of so many that gets a label too often is many, however frequent the label is


@dataclass(frozen=True)
class Excess:
    """A label that is given to many more held-out rows than have it: the counts of both."""

    label: str
    given: int
    true: int


def excess(given: Sequence[str], true: Sequence[str]) -> Excess | None:
    """The label that is given to most rows beyond as many as have it; None if these are few.

    They are many if the label is given to twice as many rows as have it, or too often to a third of all rows: a label
    that half of the rows have or more cannot be given to more than twice as many.
    """
    answers, rows = Counter(given), Counter(true)
    label = max(rows, key=lambda each: answers[each] - rows[each])
    beyond = answers[label] - rows[label]
    return Excess(label, answers[label], rows[label]) if beyond >= min(rows[label], len(true) / LARGE) else None


def unchosen(settings: Sequence[Setting], found: Excess | None) -> int:
    """The setting to keep without a choice: plain in-context learning, corrected if it gives a label in excess.

    Uncorrected, too, if no such correction was tried.
    """
    corrections = {each.calibration: number for number, each in enumerate(settings) if each.place == settings[0].place}
    tried = [corrections[name] for name in UNLABELLED if name in corrections]
    return tried[0] if tried and found is not None else 0
