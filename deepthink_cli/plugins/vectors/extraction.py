"""Extract iterative vectors (Liu and Deng 2025, ICML, PMLR 267:38290)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Progress, Tell
from deepthink_cli.plugins.vectors.episodes import Episode

if TYPE_CHECKING:
    from torch import Tensor

REFRESHED = 10  # episodes after which the vectors that are added become the mean of all episodes so far


def extract(engine: Engine, episodes: Sequence[Episode], alpha: float, tell: Tell) -> Tensor:
    """The vectors (layers, C + 1, W) in float32: one for each of C labels, and the query's last.

    With a_l(p) the output of layer l's attention at token p, after which a label begins,

        d_l(i) = a_l(p_i) + alpha v_l(y_i) - a'_l,    v_l(y) = mean over episodes of the mean of d_l(i) with y_i = y,

    where alpha v_l(y_i) is added during the pass over demonstrations and query, and a'_l is the output at the end of
    the query that is read alone, without vectors. The query has its own row in the place of y_i. The added v are
    refreshed after the first episode and after every tenth that follows; the first episode adds none. Raises as
    `Engine.read_adding`.
    """
    total, vectors = torch.zeros(()), None
    tell(Progress("extracting", 0, len(episodes)))
    for number, episode in enumerate(episodes):
        total = total + _differences(engine, episode, vectors, alpha)
        if number % REFRESHED == 0:
            vectors = total / (number + 1)
        tell(Progress("extracting", number + 1, len(episodes)))
    found = (total / len(episodes)).float()
    if not found.isfinite().all():
        raise DeepThinkError(f"the vectors hold NaN or infinite values; nothing was written; {engine.advice()}")
    return found


def _differences(engine: Engine, episode: Episode, vectors: Tensor | None, alpha: float) -> Tensor:
    """The mean of d_l over the demonstrations of each label, and d_l of the query: (layers, C + 1, W), float64."""
    classes = torch.tensor(episode.classes)
    labels = int(classes.max()) + 1  # an episode has every label
    added = None if vectors is None else list(alpha * vectors[:, [*episode.classes, labels]])
    _, together = engine.read_adding(episode.ids, episode.places, added)
    _, alone = engine.read_adding(episode.alone, [len(episode.alone) - 1], None)
    differences = (together - alone).double()
    of_labels = [differences[:, :-1][:, classes == label].mean(1) for label in range(labels)]
    return torch.stack([*of_labels, differences[:, -1]], dim=1)
