"""One pass of the network over many rows: packed over one shared memory, or padded, one sequence a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from deepthink_cli.engine.activation import fused_activations
from deepthink_cli.engine.attention import Reach, over_memory
from deepthink_cli.engine.feedforward import last_feedforward_at
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import PackedRow, blocks, wanted
from deepthink_cli.memory import Memory

Past = tuple[Memory, ...]  # what stands before every row of a pass, one memory behind the other


class _Packed:
    """Rows side by side in one line, each attending to itself and to the one memory."""

    def __init__(self, model: LanguageModel, rows: Sequence[PackedRow]) -> None:
        device, self.model = model.device, model
        self.starts = [0, *accumulate(len(row) for row in rows)][:-1]
        self.ids = torch.tensor([[token for row in rows for token in row.ids]], device=device)  # (1, T)
        self.depths = torch.tensor([[depth for row in rows for depth in row.depths]], device=device)
        self.blocks = blocks(rows, model.dtype, device)

    @contextmanager
    def after(self, past: Past, places: Tensor) -> Iterator[dict[str, Any]]:
        start = sum(memory.length for memory in past)
        network, reaches = self.model.network, [Reach(past, self.blocks, places)]
        with (
            over_memory(network, reaches),
            fused_activations(network.base_model),
            last_feedforward_at(places, network.base_model),
        ):
            yield {"input_ids": self.ids, "position_ids": self.depths + start, "use_cache": False}


class _Padded:
    """One sequence a row, padded on the right, where no real token attends to it; each with a copy of the memory."""

    def __init__(self, model: LanguageModel, rows: Sequence[PackedRow]) -> None:
        width = max(map(len, rows))
        self.model = model
        self.starts = [width * number for number in range(len(rows))]
        self.ids = torch.tensor([row.ids + (0,) * (width - len(row)) for row in rows], device=model.device)

    @contextmanager
    def after(self, past: Past, places: Tensor) -> Iterator[dict[str, Any]]:
        (memory,) = past
        yield self.model.inputs(self.ids, memory.as_cache(self.model.dtype, rows=len(self.ids)), memory.length)


@torch.inference_mode()
def score_rows(
    model: LanguageModel, pasts: Sequence[Past], rows: Sequence[PackedRow], packed: bool
) -> Iterator[dict[tuple[int, int], float]]:
    """Yield, for each past, the score of every (query, candidate) of the rows, all in one pass."""
    given = _Packed(model, rows) if packed else _Padded(model, rows)
    want = wanted(rows, given.starts, model.device)
    for past in pasts:
        with model.lock, given.after(past, want.places) as inputs:
            found = model.log_probabilities(inputs, want.places, want.asked, want.tokens)
        sums = torch.zeros(len(want.scores), dtype=torch.float64).index_add_(0, want.owners, found.cpu().double())
        yield dict(zip(want.scores, sums.tolist(), strict=True))
