"""The evaluated rows that `--max-error` would label, and how many of these labels are wrong."""

from __future__ import annotations

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


class CoverageEvaluator:
    """Counts the labels of the last iteration that each bound allows, if the memory's labelled rows give bounds."""

    def __init__(self, scorer: Scorer) -> None:
        stored, self._calibrate = scorer.memory.provenance.calibrated, scorer.calibrate
        self._last = scorer.memory.iterations[-1]
        in_use = scorer.calibrate[:1] == (STORED,) and not scorer.others
        rows = stored.held_out if stored is not None and in_use else None
        bounds = [bound(rows, most) for most in SHOWN] if rows is not None else []
        self.found = [Coverage(each) for each in bounds if each is not None]

    def add(self, row: Prediction) -> None:
        """Count a row."""
        if row.iteration != self._last:
            return
        answer = answer_of(row, self._calibrate)
        for each in self.found:
            if answer.probability >= each.bound.threshold:
                each.given += 1
                each.wrong += answer.label != row.query.gold
