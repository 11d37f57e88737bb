"""Labels by the nearest mean hidden state: hidden calibration (Cho et al. 2025, arXiv 2406.16535)."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.corrections import Centroids
from deepthink_cli.errors import InputError
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray
    from torch import Tensor

    from deepthink_cli.scoring.softmax import Floats

_NUMBER = "<f4"  # little-endian float32
_WIDE = math.log(1e4)  # the slope is sought within this factor of its start


def centroids_of(
    states: Sequence[Tensor], gold: Sequence[str], groups: Sequence[int], labels: Sequence[str]
) -> Centroids:
    """The mean hidden state of each label, from the hidden states (W,) of rows and their true labels `gold`.

    `groups` are the numbers of the rows' inputs (`input_groups`). Each label has two or more inputs.

    The slope a is the minimum of -sum_i log softmax(-a |h_i - c|^2)[gold_i] + log(2 a s^2)^2 / 2. The means c leave out
    the rows of row i's own input; s^2 is the mean squared distance of a row from the mean of its own label. Raises
    InputError if all rows of each label have the same state.
    """
    import numpy as np
    from scipy.optimize import minimize_scalar

    states_NW, places = _numbers(states), np.array([labels.index(label) for label in gold])
    counts = np.bincount(places, minlength=len(labels))
    means = _means(states_NW, places, range(len(labels)))
    squared_NC, rows, inputs = _squared(states_NW, means), range(len(gold)), np.array(groups)
    for number in range(inputs.max() + 1):
        same = np.flatnonzero(inputs == number)
        for label in np.unique(places[same]):
            own = same[places[same] == label]
            others = (counts[label] * means[label] - states_NW[own].sum(axis=0)) / (counts[label] - len(own))
            squared_NC[same, label] = ((states_NW[same] - others) ** 2).sum(axis=1)
    variance = squared_NC[rows, places].mean()
    if not variance:
        raise InputError("the rows of each label are all the same to the model; give rows that differ")

    def loss(log_a: float) -> float:
        scores = -np.exp(log_a) / (2 * variance) * squared_NC
        return float(log_a**2 / 2 - log_softmax(scores)[rows, places].sum())

    slope = math.exp(minimize_scalar(loss, bounds=(-_WIDE, _WIDE), method="bounded").x) / (2 * variance)
    stored = [b64encode(mean.astype(_NUMBER).tobytes()).decode() for mean in means]
    return Centroids(dict(zip(labels, stored, strict=True)), float(slope))


def nearness(states: Sequence[Tensor], centroids: Centroids) -> list[dict[str, float]]:
    """-a |h - c_y|^2 for every state h (W,) and label y with the mean c_y, in float64; a is the slope.

    The nearest label, which is the answer, does not depend on a. Raises InputError for means of another width.
    """
    import numpy as np

    means, numbers = [np.frombuffer(b64decode(mean), _NUMBER) for mean in centroids.means.values()], _numbers(states)
    if means[0].shape != numbers.shape[1:]:
        raise InputError(
            f"the centroids of the memory have {len(means[0])} numbers, and the hidden states of its model "
            f"{numbers.shape[1]}; store others with deepthink calibrate"
        )
    scores: list[list[float]] = (-centroids.slope * _squared(numbers, np.stack(means))).tolist()
    return [dict(zip(centroids.means, of_state, strict=True)) for of_state in scores]


def closeness(states: Sequence[Floats], rows: Sequence[Floats], gold: Sequence[int]) -> Floats:
    """-|h - c_y|^2 (N, C) for hidden states (N, W); -inf for a label without rows.

    c_y is the mean state of the rows (M, W) with the label y. `gold` (M,) are the places of the rows' labels; C is the
    largest place plus 1.
    """
    import numpy as np

    states_NW, rows_MW, places = np.asarray(states), np.asarray(rows), np.asarray(gold)
    scores = np.full((len(states_NW), places.max() + 1), -np.inf)
    known = np.unique(places).tolist()
    scores[:, known] = -_squared(states_NW, _means(rows_MW, places, known))
    return scores


def _numbers(states: Sequence[Tensor]) -> Floats:
    """The states in float64, (N, W)."""
    import numpy as np

    return np.stack([state.double().numpy() for state in states])


def _means(rows_NW: Floats, places: NDArray[int64], labels: Iterable[int]) -> Floats:
    """The mean state (C, W) of the rows of each label; `places` (N,) are the places of the rows' labels."""
    import numpy as np

    return np.stack([rows_NW[places == label].mean(axis=0, dtype=np.float64) for label in labels])


def _squared(states_NW: Floats, means_CW: Floats) -> Floats:
    """The squared distances (N, C) between states and means."""
    import numpy as np

    return np.stack([((states_NW - mean) ** 2).sum(axis=1) for mean in means_CW], axis=1)
