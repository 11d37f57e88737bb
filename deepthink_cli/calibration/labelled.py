"""Corrections that are fitted to labelled rows of one memory: of other rows, and of the labelled rows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.calibration.bounded import cross_validated
from deepthink_cli.calibration.calibrator import corrected, estimated, log_probabilities
from deepthink_cli.calibration.observed import check_rows
from deepthink_cli.calibration.registry import FEWEST, Calibration
from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.errors import InputError
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Correction, Prediction, Scores, prediction_of

if TYPE_CHECKING:
    from deepthink_cli.scoring.softmax import Floats


@dataclass(frozen=True, eq=False)
class Measured:
    """The predictions of n rows by one memory, and their hidden states (n, L, W) if a correction uses them."""

    predictions: Sequence[Prediction]
    states: Floats | None = None


def check_labelled(
    method: Calibration, rows: Sequence[Query], demonstrations: DemonstrationSet | TokenizedDemonstrations, source: str
) -> None:
    """Raise InputError, naming the `source` of labelled rows, for rows to which a calibration cannot be fitted."""
    labels = demonstrations.labels
    groups = input_groups(rows, demonstrations.template, labels)
    if not method.of_states and len(rows) < FEWEST:
        raise InputError(f"{source}: {method.name} needs {FEWEST}, and there are {len(rows)}; give more")
    check_rows(method, [str(row.gold) for row in rows], groups, labels, source)


class LabelledRows:
    """Rows with true labels, after the memory whose scores of other rows are corrected; `source` names them."""

    def __init__(self, rows: Measured, demonstrations: TokenizedDemonstrations, source: str) -> None:
        self.rows, self.demonstrations, self.source = rows, demonstrations, source
        self.labels = demonstrations.labels
        self.queries = [each.query for each in rows.predictions]
        self.gold = [self.labels.index(str(query.gold)) for query in self.queries]
        self.groups = input_groups(self.queries, demonstrations.template, self.labels)
        self.logs = log_probabilities(rows.predictions, self.labels)

    def corrections(self, methods: Sequence[Calibration], rows: Measured | None) -> dict[str, list[Correction]]:
        """The corrections of other rows by each method, or of the labelled rows, each by those of other folds.

        Raises InputError for labelled rows that do not suffice.
        """
        for method in methods:
            check_labelled(method, self.queries, self.demonstrations, self.source)
        return {
            method.name: self._cross_validated(method) if rows is None else self._fitted(method, rows)
            for method in methods
        }

    def _fitted(self, method: Calibration, rows: Measured) -> list[Correction]:
        if not method.of_states:
            return corrected(rows.predictions, estimated(method, self.labels, self.logs, self.gold))
        assert self.rows.states is not None
        assert rows.states is not None
        head = method.head(self.rows.states, self.logs[:, 0], self.gold, self.groups)
        logs = log_probabilities(rows.predictions, self.labels)
        found = head.scores(rows.states, logs[:, 0])
        return self._corrections(rows.predictions, found, found)

    def _cross_validated(self, method: Calibration) -> list[Correction]:
        sums, means = (
            cross_validated(method, self.logs[:, kind], self.gold, self.groups, self.rows.states) for kind in (0, 1)
        )
        return self._corrections(self.rows.predictions, sums, means)

    def _corrections(self, predictions: Sequence[Prediction], sums: Floats, means: Floats) -> list[Correction]:
        found = list[Correction]()
        for prediction, *kinds in zip(predictions, sums.tolist(), means.tolist(), strict=True):
            query = prediction.query
            places = [self.labels.index(candidate) for candidate in query.candidates]
            scores = Scores(*(tuple(values[place] for place in places) for values in kinds))
            after = prediction_of(query, prediction.iteration, scores)
            found.append(Correction(after, {}, len(self.queries), "rows"))
        return found
