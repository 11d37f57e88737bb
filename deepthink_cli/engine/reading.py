"""Several readings in one pass: each attends to its own history and to itself, none to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from deepthink_cli.engine.activation import fused_activations
from deepthink_cli.engine.attention import Kept, Reach, over_memory
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import Block
from deepthink_cli.memory import Memory


@dataclass(frozen=True, eq=False)
class Reading:
    """Tokens to be read at positions `start` onward, after a history if there is one (Eq. 2 and 3)."""

    token_ids: tuple[int, ...]
    history: Memory | None = None
    start: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)


@torch.inference_mode()
def read_packed(model: LanguageModel, readings: Sequence[Reading]) -> list[Memory]:
    """The present of every reading, in one pass that neither copies a history nor caches it.

    Only for a model that is known to give the same when packed. Raises as `LanguageModel.read` does.
    """
    for one in readings:
        model.check_reading(one.token_ids, one.history, one.start)
    spans = list(pairwise([0, *accumulate(map(len, readings))]))
    ids = [token for one in readings for token in one.token_ids]
    positions = [one.start + place for one in readings for place in range(len(one))]
    given = torch.tensor([ids, positions], device=model.device)  # (2, T)
    reaches = [
        Reach(() if one.history is None else (one.history,), (Block(start, 1, len(one), None),))
        for one, (start, _) in zip(readings, spans, strict=True)
    ]
    kept: Kept = {}
    body: Any = model.network.base_model
    with model.lock, over_memory(model.network, reaches, kept), fused_activations(body):
        body(input_ids=given[:1], position_ids=given[1:], use_cache=False)
    return [model.checked_present(part, len(one)) for part, one in zip(_parts(kept, spans), readings, strict=True)]


def _parts(kept: Kept, spans: Sequence[tuple[int, int]]) -> list[Memory]:
    """The kept keys and values of each span, copied layer by layer, so that all layers never exist twice."""
    parts: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in spans]
    for layer in sorted(kept):
        key, value = kept.pop(layer)
        for (start, stop), (keys, values) in zip(spans, parts, strict=True):
            keys.append(key[:, start:stop].contiguous())
            values.append(value[:, start:stop].contiguous())
    return [Memory(tuple(keys), tuple(values)) for keys, values in parts]
