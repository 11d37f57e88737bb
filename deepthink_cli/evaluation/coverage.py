"""How many of the labels are wrong if only probable ones are given: by a bound of errors, and by shares of the rows."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deepthink_cli.calibration.bounded import SHOWN, Bound, bound
from deepthink_cli.calibration.registry import STORED
from deepthink_cli.prediction.rows import answer_of
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.prediction import Prediction


@dataclass
class Coverage:
    """Running counts for one bound of errors: `given` labels among the rows, and `wrong` ones of them."""

    bound: Bound
    given: int = 0
    wrong: int = 0

    def as_json(self) -> dict[str, Any]:
        """The bound and the counts as JSON values."""
        return {
            "max_error": self.bound.most,
            "threshold": self.bound.threshold,
            "labelled": self.given,
            "wrong": self.wrong,
        }


SHARES = (0.25, 0.5, 0.75, 0.9, 1.0)  # of the evaluated rows


@dataclass(frozen=True)
class Probable:
    """The `given` labels with a probability of at least `threshold`, and how many of them are `wrong`, of `rows`."""

    threshold: float
    given: int
    wrong: int
    rows: int

    def as_json(self) -> dict[str, Any]:
        """The share of rows that are given a label, and the counts, as JSON values."""
        return {
            "coverage": self.given / self.rows,
            "threshold": self.threshold,
            "labelled": self.given,
            "wrong": self.wrong,
        }


class CoverageEvaluator:
    """Counts wrong labels of the last iteration, the most probable labels first.

    `found` has a count for each bound that the memory's labelled rows give, `probable` for each of `SHARES`.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._probabilities, self._wrong = array("d"), bytearray()
        stored, self._calibrate = scorer.memory.provenance.calibrated, scorer.calibrate
        self._last = scorer.memory.iterations[-1]
        in_use = scorer.calibrate[:1] == (STORED,) and not scorer.others
        rows = stored.held_out if stored is not None and in_use else None
        bounds = [bound(rows, most) for most in SHOWN] if rows is not None else []
        self.found = [Coverage(each) for each in bounds if each is not None]

    def add(self, row: Prediction) -> None:
        """Count a row."""
        if row.iteration != self._last or row.text is not None:
            return
        answer = answer_of(row, self._calibrate)
        self._probabilities.append(answer.probability)
        self._wrong.append(answer.label != row.query.gold)
        for each in self.found:
            if answer.probability >= each.bound.threshold:
                each.given += 1
                each.wrong += answer.label != row.query.gold

    @property
    def probable(self) -> Iterator[Probable]:
        """The labels of each share of the rows, with all labels as probable as the last of them."""
        order = sorted(range(len(self._wrong)), key=lambda row: -self._probabilities[row])
        given = 0
        for share in SHARES if order else ():
            if given >= share * len(order):
                continue
            given = math.ceil(share * len(order))
            threshold = self._probabilities[order[given - 1]]
            while given < len(order) and self._probabilities[order[given]] == threshold:
                given += 1
            yield Probable(threshold, given, sum(self._wrong[row] for row in order[:given]), len(order))
