"""Measure how much faster a layer of a loaded model runs in bfloat16 than in float32 on this processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.budget import byte_budget

if TYPE_CHECKING:
    from torch import Tensor

TOKENS, SECONDS, ROUNDS = 256, 0.8, 3  # tokens of the timed forward; no new round after so many seconds, but 3 at least
_DTYPES = (torch.float32, torch.bfloat16)


@torch.inference_mode()
def bfloat16_gain(engine: Engine, clock: Callable[[], float] = time.perf_counter) -> float | None:
    """The median time of a short forward in float32, divided by its time in bfloat16; takes about a second.

    The forward runs 256 tokens through the first layer of the network, copied in both dtypes, without vocabulary and
    without a memory. None if the model does not run on a processor, is quantized, or cannot be cut to one layer.
    """
    if not isinstance(engine, BatchedEngine) or engine.model.device.type != "cpu" or engine.identity.quantize:
        return None
    body: Any = engine.model.network.base_model
    limit = engine.limits.max_tokens()
    tokens = TOKENS if limit is None else min(TOKENS, limit)
    with engine.model.lock:
        try:
            width = body.get_input_embeddings().weight.shape[1]
            slow, fast = (_forward(_first_layer(body, dtype), tokens, width, dtype) for dtype in _DTYPES)
            for run in (slow, fast):  # the first run allocates
                run()
            return _ratio(slow, fast, clock)
        except Exception:  # a network's own code can fail in any way on a single layer
            return None


def _ratio(slow: Callable[[], object], fast: Callable[[], object], clock: Callable[[], float]) -> float:
    """The ratio of median times; the two calls take turns, so that a slow moment of the machine affects both."""
    times: tuple[list[float], list[float]] = ([], [])
    started = clock()
    while len(times[0]) < ROUNDS or clock() - started < SECONDS:
        for run, durations in zip((slow, fast), times, strict=True):
            before = clock()
            run()
            durations.append(clock() - before)
    return median(times[0]) / median(times[1])


def _forward(body: nn.Module, tokens: int, width: int, dtype: torch.dtype) -> Callable[[], object]:
    hidden_1SW: Tensor = torch.randn(1, tokens, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    return lambda: body(inputs_embeds=hidden_1SW, use_cache=False)


def _first_layer(body: Any, dtype: torch.dtype) -> nn.Module:
    """A copy, in `dtype`, of a network without vocabulary, with only its first layer."""
    stacks = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    layers = max(stacks, key=lambda stack: sum(parameter.numel() for parameter in stack.parameters()))
    if 4 * sum(parameter.numel() for parameter in layers[0].parameters()) > byte_budget(torch.device("cpu")):
        raise MemoryError("a copy of one layer does not fit")
    embedding = body.get_input_embeddings()
    # Objects in the memo stand for their originals in the copy.
    memo = {id(layers): nn.ModuleList([deepcopy(layers[0])]), id(embedding): nn.Identity()}
    copy: nn.Module = deepcopy(body, memo)
    return copy.to(dtype)
