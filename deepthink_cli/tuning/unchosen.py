"""What is kept where labelled rows are too few to choose with: what needs no choice and is least likely to fail.

Plain in-context learning that prefers a label whatever the input is fails for most inputs. A correction that is
estimated from texts without labels has no setting that rows could choose wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deepthink_cli.tuning.options import Setting

UNLABELLED = ("domain", "contextual")  # corrections without labels, the one to prefer first
EXCESS = 2  # times as many rows as have a label


@dataclass(frozen=True)
class Excess:
    """A label that is given to at least twice as many held-out rows as have it: the counts of both."""

    label: str
    given: int
    true: int


def excess(given: Sequence[str], true: Sequence[str]) -> Excess | None:
    """The label with the largest excess over its true rows; None if none is given to twice as many."""
    answers = Counter(given)
    ratio, label = max((answers[label] / rows, label) for label, rows in Counter(true).items())
    return Excess(label, answers[label], true.count(label)) if ratio >= EXCESS else None


def unchosen(settings: Sequence[Setting], found: Excess | None) -> int:
    """The setting to keep without a choice: plain in-context learning, corrected if it gives a label in excess.

    Uncorrected, too, if no such correction was tried.
    """
    corrections = {each.calibration: number for number, each in enumerate(settings) if each.place == settings[0].place}
    tried = [corrections[name] for name in UNLABELLED if name in corrections]
    return tried[0] if tried and found is not None else 0
