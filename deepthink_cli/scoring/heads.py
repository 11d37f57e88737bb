"""Scores of labels by a linear function of hidden states and label scores: the heads that memories store."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.corrections import Head
from deepthink_cli.errors import InputError
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.scoring.softmax import Floats

LAYERS = 5
_NUMBER = "<f4"  # little-endian float32


def observed_layers(depth: int) -> tuple[int, ...]:
    """The layers whose hidden states are compared, of a model with `depth`: five, evenly over the upper half.

    They are at 1/2, 5/8, 3/4, 7/8 and all of the depth; a model with few layers has fewer.
    """
    return tuple(sorted({round(depth * (1 + place / (LAYERS - 1)) / 2) for place in range(LAYERS)} - {0}))


@dataclass(frozen=True, eq=False)
class LinearHead:
    """score(y) = sum_l w_yl . h_l + b_y + a log p(y | x), for C labels and the hidden states h of L layers.

    `weights` are w (C, L, W), `bias` is b (C,), minus infinity for a label without rows, and `of_scores` is a. If
    labels are compared, a constant in w or in b that all of them share has no effect. Without layers (L = 0), and with
    a = 1, it takes a bias off the scores. `joined`: rows without labels have a part in it.
    """

    weights: Floats
    bias: Floats
    of_scores: float = 0.0
    joined: bool = False

    def scores(self, states: Floats | None, logs: Any) -> Floats:
        """The scores (n, C) from hidden states (n, L, W), if the head has weights, and scores (n, C) of the labels."""
        import numpy as np

        found = self.bias
        if self.weights.shape[1]:
            found = np.einsum("nlw,clw->nc", np.asarray(states, dtype=np.float64), self.weights) + found
        return found + self.of_scores * log_softmax(logs) if self.of_scores else found

    def stored(self, layers: Sequence[int], labels: Sequence[str], apart: bool = False) -> Head:
        """The head as a memory stores it, without layers that have no weight; `labels` are those of the scores.

        Constants that all labels share are left out, unless each label's score counts by itself (`apart`).
        """
        used = [bool(self.weights[:, place].any()) for place in range(len(layers))]
        weights, bias = self.weights, self.bias
        if not apart:
            weights, bias = weights - weights.mean(axis=0), bias - bias.mean()
        numbers = [b64encode(each.astype(_NUMBER).tobytes()).decode() for each in weights[:, used]]
        return Head(
            tuple(layer for layer, has_weight in zip(layers, used, strict=True) if has_weight),
            dict(zip(labels, numbers, strict=True)),
            dict(zip(labels, bias.tolist(), strict=True)),
            float(self.of_scores),
        )

    @classmethod
    def of(cls, stored: Head) -> LinearHead:
        """The head of a memory, for its labels in their stored order."""
        import numpy as np

        numbers = [np.frombuffer(b64decode(each), _NUMBER) for each in stored.weights.values()]
        weights = np.stack(numbers).astype(np.float64).reshape(len(numbers), len(stored.layers), -1)
        return cls(weights, np.array([stored.bias[label] for label in stored.weights]), stored.of_scores)


def head_scores(head: Head, states: Sequence[Tensor], logs: Sequence[Sequence[float]]) -> list[dict[str, float]]:
    """The score of every label of a stored head for each row, from its states (L, W) and its labels' scores in nats.

    Raises InputError for a head of another width than that of the model.
    """
    import numpy as np

    linear, numbers = LinearHead.of(head), np.stack([state.double().numpy() for state in states])
    if linear.weights.shape[2] != numbers.shape[2]:
        raise InputError(
            f"the stored correction is of hidden states of {linear.weights.shape[2]} numbers, and those of the model "
            f"have {numbers.shape[2]}; store another with deepthink calibrate"
        )
    rows: list[list[float]] = linear.scores(numbers, np.asarray(logs, dtype=np.float64)).tolist()
    return [dict(zip(head.weights, row, strict=True)) for row in rows]
