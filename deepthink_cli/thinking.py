"""Deep-Thinking: the paper's equations 2 to 5, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deepthink_cli.engine.choice import read_each
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.reading import Reading
from deepthink_cli.memory import Memory
from deepthink_cli.options import Positions
from deepthink_cli.provenance import Method, Provenance, TokenizedDemonstrations


def think(
    model: LanguageModel,
    demonstrations: TokenizedDemonstrations,
    iterations: int = 5,
    eta: float = 0.01,
    momentum: float = 0.0,
    positions: Positions = "continued",
) -> Iterator[Memory]:
    """Read the demonstrations T times and yield the memory after every reading (section 3.1).

    The first reading is stored as it is: T = 1 is plain in-context learning. In every later one each
    layer attends to [history ; present] (Eq. 3); then the gate moves the history by eta toward the
    present (Eq. 4), in float32. Momentum is the official code's: m_t = (K_t - K~_(t-1)) + momentum m_(t-1),
    K~_t = K~_(t-1) + eta m_t; 0 is the paper. `positions` places the present behind the history or in its place.
    """
    method = Method(iterations, eta, momentum, positions)
    yield from (memory for (memory,) in think_each(model, [(demonstrations, method)]))


def think_each(model: LanguageModel, given: Sequence[tuple[TokenizedDemonstrations, Method]]) -> Iterator[list[Memory]]:
    """Several at once, in step: yields the memory of each after every reading, up to the least T among them."""
    ids = [demonstrations.token_ids for demonstrations, _ in given]
    starts = [len(one) if method.positions == "continued" else 0 for one, (_, method) in zip(ids, given, strict=True)]
    once = list(dict.fromkeys(ids))
    first = dict(zip(once, read_each(model, [Reading(one) for one in once]), strict=True))
    history = [
        replace(first[read.token_ids], provenance=Provenance(model.identity, read, method)) for read, method in given
    ]
    del first
    yield list(history)  # (kv_heads, L, head_dim) a layer
    step: list[Memory | None] = [None] * len(given)
    for _ in range(2, min(method.iterations for _, method in given) + 1):
        present = read_each(model, list(map(Reading, ids, history, starts)))  # Eq. 2 and 3
        for n, (_, method) in enumerate(given):
            history[n], step[n] = history[n].advanced(present[n], method.eta, method.momentum, step[n])  # Eq. 4
        yield list(history)  # Eq. 5
