"""Memories and scores from the forward pass of transformers alone, to check the package against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

Array = NDArray[np.float64]
Layer = tuple[Array, Array] | None  # keys and values (kv_heads, L, head_dim); None for a layer that keeps none


class PlainReference:
    """A network run with its own attention, masks and positions; the gate (Eq. 4) is computed in float64."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network

    @torch.inference_mode()
    def whole_scores(self, ids: Sequence[int], answers: Sequence[Sequence[int]]) -> list[float]:
        """Log-probability of each answer after `ids`, each in one pass over the whole text, without a cache."""
        texts = [torch.tensor([[*ids, *answer]]) for answer in answers]
        logits = [self.network(input_ids=text, use_cache=False).logits for text in texts]
        return [_score(*pair) for pair in zip(logits, answers, strict=True)]

    @torch.inference_mode()
    def scores_after(
        self, memory: Sequence[Layer], ids: Sequence[int], answers: Sequence[Sequence[int]]
    ) -> list[float]:
        """Log-probability of each answer after `ids`, which follow a memory."""
        texts = [torch.tensor([[*ids, *answer]]) for answer in answers]
        logits = [self.network(input_ids=text, past_key_values=_cache(memory), use_cache=True).logits for text in texts]
        return [_score(*pair) for pair in zip(logits, answers, strict=True)]

    def think(self, ids: Sequence[int], eta: float, restarted: bool) -> list[list[Layer]]:
        """The memories after one and after two readings.

        The second `continued` reading is the second half of one pass over the text twice, which needs no history.
        """
        first = self._read(ids)
        if restarted:
            present = self._read(ids, first, position_ids=torch.arange(len(ids))[None])
        else:
            present = [_last(layer, len(ids)) for layer in self._read([*ids, *ids])]
        return [first, [_gated(*layers, eta) for layers in zip(first, present, strict=True)]]

    @torch.inference_mode()
    def _read(self, ids: Sequence[int], history: Sequence[Layer] = (), **positions: Tensor) -> list[Layer]:
        """The keys and values of a pass's own tokens, after a history."""
        cache = _cache(history)
        self.network(input_ids=torch.tensor([list(ids)]), past_key_values=cache, use_cache=True, **positions)
        return [_last(_numbers(layer.keys, layer.values), len(ids)) for layer in cache.layers]


def _score(logits_1SV: Tensor, answer: Sequence[int]) -> float:
    """Log-probability of the last tokens of a pass."""
    log_p_SV = logits_1SV[0].double().log_softmax(-1)
    first = len(log_p_SV) - len(answer) - 1
    return sum(float(log_p_SV[first + place, token]) for place, token in enumerate(answer))


def _cache(memory: Sequence[Layer]) -> DynamicCache:
    pairs = [layer and tuple(torch.tensor(part, dtype=torch.float32)[None] for part in layer) for layer in memory]
    return DynamicCache([pair or (None, None) for pair in pairs]) if pairs else DynamicCache()


def _numbers(keys_1GLD: Tensor | None, values_1GLD: Tensor | None) -> Layer:
    if keys_1GLD is None or values_1GLD is None:
        return None
    return keys_1GLD[0].double().numpy(), values_1GLD[0].double().numpy()


def _last(layer: Layer, count: int) -> Layer:
    return layer and (layer[0][:, -count:], layer[1][:, -count:])


def _gated(history: Layer, present: Layer, eta: float) -> Layer:
    if history is None or present is None:
        return None
    keys, values = (old + eta * (new - old) for old, new in zip(history, present, strict=True))
    return keys, values
