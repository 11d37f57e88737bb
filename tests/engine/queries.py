"""What the tests of engines read and score, and the log-probabilities that are expected."""

from __future__ import annotations

from copy import copy
from importlib.metadata import version

import torch
from torch import Tensor

from deepthink_cli import Memory
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.model.tokens import TokenizedQuery

DEMOS = tuple(range(3, 40))
SHARED = ((9,), (9, 10), (9, 10, 11), (9, 12), (13,))  # prefixes of each other, and a branch
UNEQUAL = ((20, 21, 22, 23), (24, 21))
QUERIES = [
    TokenizedQuery(tuple(range(50, 58)), SHARED),
    TokenizedQuery(tuple(range(60, 63)), UNEQUAL),
    TokenizedQuery((70,), ((5,),)),
    TokenizedQuery(tuple(range(80, 120)), SHARED[::-1]),
    TokenizedQuery(tuple(range(90, 98)), ((30,), (31,), (32,))),
]
NOT_PACKED = {"gpt_neo", "bloom", "falcon", "falcon-alibi", "mpt", "deepseek_v3"}
if tuple(map(int, version("transformers").split(".")[:2])) < (5, 24):
    NOT_PACKED |= {"gptj", "codegen"}


def plain_scores(engine: BatchedEngine, demos: tuple[int, ...], query: TokenizedQuery) -> list[float]:
    """Log-probabilities of whole prompts, each in one pass without cache and without positions."""
    sums = []
    for answer in query.answers:
        ids = torch.tensor([[*demos, *query.prefix, *answer]])
        logits = engine.model.network(input_ids=ids, use_cache=False).logits[0].double().log_softmax(-1)
        first = len(demos) + len(query.prefix) - 1
        sums.append(sum(float(logits[first + n, token]) for n, token in enumerate(answer)))
    return sums


def with_passes_of(engine: BatchedEngine, tokens: int) -> BatchedEngine:
    """The same engine with another number of tokens a pass."""
    changed = copy(engine)
    changed.batch_tokens = tokens
    return changed


def assert_close(memory: Memory, expected: Memory) -> None:
    """Check that keys and values are the same up to rounding."""
    for actual, right in zip(tensors(memory), tensors(expected), strict=True):
        torch.testing.assert_close(actual, right, rtol=1e-4, atol=1e-4)


def tensors(memory: Memory) -> tuple[Tensor, ...]:
    """All keys, then all values."""
    return (*memory.keys, *memory.values)
