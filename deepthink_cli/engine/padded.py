"""The padded engine: one sequence a row, each with its own copy of the memory, as transformers runs batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache

from deepthink_cli.engine.base import Past, Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.budget import rows_over
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import PackedRow, lines, requests, sent
from deepthink_cli.memory import Memory

if TYPE_CHECKING:
    from torch import Tensor

COST = "each candidate is a row with its own copy of the memory, several times slower than packed scoring"


class PaddedLayout:
    """One sequence a row, padded on the right, so that no real token attends to padding."""

    def __init__(self, model: LanguageModel, rows: Sequence[PackedRow]) -> None:
        width = max(map(len, rows))
        self.model = model
        self.starts = [width * number for number in range(len(rows))]
        ids_RS = torch.tensor([row.ids + (0,) * (width - len(row)) for row in rows])
        self.requested, (self.ids_RS,) = sent(model.device, requests(rows, self.starts), ids_RS)

    @contextmanager
    def after(self, past: Past, places_M: Tensor) -> Iterator[dict[str, Any]]:
        """Every row gets a copy of the memory, if there is one."""
        caches = [memory.as_cache(self.model.dtype, rows=len(self.ids_RS)) for memory in past]
        (cache,) = caches or [DynamicCache()]
        yield self.model.inputs(self.ids_RS, cache, sum(memory.length for memory in past))


class PaddedEngine(BatchedEngine):
    """One row for each distinct sequence of a query and its candidates, padded on the right; one reading a pass.

    Requires only that the network can continue from a cache of keys and values.
    """

    source = "this project"
    name = "padded"
    layout = PaddedLayout
    reads_together = False
    rows_of = staticmethod(lines)

    def joined(self, past: Past) -> Past:
        """The past as one memory, since a cache cannot have several parts."""
        return (reduce(Memory.followed_by, past),) if past else ()

    def bounds(self, memory: Memory, width: int) -> tuple[int, int]:
        """As many rows as fit the device, each with a copy of the memory."""
        return self.batch_tokens, rows_over(self.model, memory, width, self.free)

    def read_pass(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of each reading, each in a separate pass."""
        return [self.model.read(reading.token_ids, reading.history, reading.start) for reading in readings]
