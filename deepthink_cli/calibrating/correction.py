"""Predictions corrected by a calibration, given what it is estimated from.

Knows scores; runs no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    logs: Floats
    inputs: int


def correct_all(
    name: str, predictions: Sequence[Prediction], basis: Sequence[Prediction] | None = None
) -> list[Correction]:
    """Correct all predictions of one memory by the calibration `name`, in float64.

    All must have the same candidates. The bias is estimated from `basis`, the predictions of the same memory for the
    inputs that the calibration needs (`basis_predictions`), or from the predictions themselves if there is none, as
    `batch` and `prior` do. Raises InputError for an unknown name.
    """
    method = calibration(name)
    bias = estimated(method, log_probabilities(predictions if basis is None else basis))
    return corrected(method, predictions, bias)


def log_probabilities(predictions: Sequence[Prediction]) -> Floats:
    """Normalised log-probabilities (n, 2, C) of predictions with the same C candidates, by sum and per token."""
    scores = [[list(each.scores.values()), list(each.means.values())] for each in predictions]
    return normalised(scores)


def estimated(method: Calibration, logs: Floats) -> Bias:
    """The bias that a calibration estimates from the log-probabilities (m, 2, C) of its inputs."""
    return Bias(np.stack([method.bias(logs[:, kind]) for kind in range(logs.shape[1])]), len(logs))


def corrected(method: Calibration, predictions: Sequence[Prediction], bias: Bias) -> list[Correction]:
    """Take a bias off predictions with the same candidates, in the bias's order."""
    corrections = []
    for prediction, (sums, means) in zip(
        predictions, (log_probabilities(predictions) - bias.logs).tolist(), strict=True
    ):
        shown = dict(zip(prediction.query.candidates, bias.logs[0].tolist(), strict=True))
        calibrated = prediction_of(prediction.query, prediction.iteration, Scores(tuple(sums), tuple(means)))
        corrections.append(Correction(calibrated, shown, bias.inputs, "rows" if method.from_rows else "texts"))
    return corrections
