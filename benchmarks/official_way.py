"""Scoring as the official Deep-Thinking code does it, on the same network and memory.

One row per candidate: the query and the whole candidate, padded on the right to the longest row of the set.
Every batch gets a copy of the memory for each of its rows, logits at every position, and a log-softmax of all
of them over the vocabulary; only then are the candidate's tokens picked out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor
from transformers import DynamicCache

from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery


@torch.inference_mode()
def official_scores(
    model: LanguageModel, memory: Memory, queries: Sequence[TokenizedQuery], batch_size: int, width: int | None = None
) -> list[list[float]]:
    """The sum of log-probabilities of every query's candidates; `width` pads to more than the set's own longest row."""
    width = width or max(query.longest for query in queries)
    rows = iter([(query.prefix, answer) for query in queries for answer in query.answers])
    sums: list[float] = []
    while batch := list(islice(rows, batch_size)):
        sums += _batch(model, memory, batch, width)
    scores: Iterator[float] = iter(sums)
    return [list(islice(scores, len(query.answers))) for query in queries]


def _batch(
    model: LanguageModel, memory: Memory, batch: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], width: int
) -> list[float]:
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    mask = torch.zeros(len(batch), memory.length + width, dtype=torch.long)
    for row, (prefix, answer) in enumerate(batch):
        length = len(prefix) + len(answer)
        ids[row, :length] = torch.tensor(prefix + answer)
        mask[row, : memory.length + length] = 1
    positions = torch.arange(memory.length, memory.length + width).expand(len(batch), -1)
    logits = model.network(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=_copies(memory, len(batch), model.dtype),
        use_cache=True,
    ).logits  # (rows, width, vocabulary)
    log_probabilities = logits.float().log_softmax(-1)
    return [_sum(log_probabilities[row], prefix, answer) for row, (prefix, answer) in enumerate(batch)]


def _copies(memory: Memory, rows: int, dtype: torch.dtype) -> DynamicCache:
    def copied(tensor: Tensor) -> Tensor:
        return tensor.to(dtype)[None].expand(rows, -1, -1, -1).contiguous()

    return DynamicCache([(copied(key), copied(value)) for key, value in zip(memory.keys, memory.values, strict=True)])


def _sum(log_probabilities: Tensor, prefix: Sequence[int], answer: Sequence[int]) -> float:
    """The log-probabilities (width, vocabulary) at a candidate's tokens, each read one position before it."""
    before = torch.arange(len(prefix) - 1, len(prefix) + len(answer) - 1)
    return float(log_probabilities[before, torch.tensor(answer)].sum())
