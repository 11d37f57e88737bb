"""Predictions corrected by a calibration, given what it is estimated from.

Knows scores; runs no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from deepthink_cli.calibration.base import Calibration, normalised
from deepthink_cli.calibration.registry import calibration
from deepthink_cli.prediction import Correction, Prediction, prediction_of
from deepthink_cli.scoring import Scores

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats


@dataclass(frozen=True)
class Bias:
    """log b of C candidates, in nats, estimated from `inputs` texts or rows.

    `logs` (2, C) corrects the log-probabilities (first) and the log-probabilities per token (second), each estimated
    from scores of its kind.
    """

    candidates: tuple[str, ...]
    logs: Floats
    inputs: int


def correct_all(
    name: str, predictions: Sequence[Prediction], basis: Sequence[Prediction] | None = None
) -> list[Correction]:
    """Correct all predictions of one memory by the calibration `name`, in float64.

    All must have the same candidates. The bias is estimated from `basis`, the predictions of the same memory for the
    inputs that the calibration needs (`basis_predictions`), or from the predictions themselves if there is none, as
    `batch` and `prior` do. Raises InputError for an unknown name, and for a single row without a basis.
    """
    method, order = calibration(name), predictions[0].query.candidates
    logs = log_probabilities(predictions if basis is None else basis, order)
    return corrected(method, predictions, estimated(method, order, logs))


def log_probabilities(predictions: Sequence[Prediction], order: Sequence[str]) -> Floats:
    """Normalised log-probabilities (n, 2, C) of predictions with the candidates `order`, by sum and per token."""
    kinds = [(each.scores, each.means) for each in predictions]
    return normalised([[[scores[candidate] for candidate in order] for scores in pair] for pair in kinds])


def estimated(method: Calibration, candidates: tuple[str, ...], logs: Floats, others: int = 0) -> Bias:
    """The bias that a calibration estimates from the log-probabilities (m, 2, C) of its inputs.

    Raises InputError for too few rows; so many `others` have a bias that the result is averaged with.
    """
    biases = [method.bias(logs[:, kind], others) for kind in range(logs.shape[1])]
    return Bias(candidates, np.stack(biases), len(logs))


def corrected(method: Calibration, predictions: Sequence[Prediction], bias: Bias) -> list[Correction]:
    """Take a bias off predictions that have its candidates, in any order."""
    logs: list[list[list[float]]] = (log_probabilities(predictions, bias.candidates) - bias.logs).tolist()
    by_label: dict[str, float] = dict(zip(bias.candidates, bias.logs[0].tolist(), strict=True))
    counted: Literal["texts", "rows"] = "rows" if method.from_rows else "texts"
    corrections = []
    for prediction, kinds in zip(predictions, logs, strict=True):
        query = prediction.query
        places = [bias.candidates.index(candidate) for candidate in query.candidates]
        sums, means = (tuple(values[place] for place in places) for values in kinds)
        after = prediction_of(query, prediction.iteration, Scores(sums, means))
        corrections.append(
            Correction(after, {label: by_label[label] for label in query.candidates}, bias.inputs, counted)
        )
    return corrections
