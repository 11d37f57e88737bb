"""Deep-Thinking with several sets of demonstrations at once: each reading of all of them is done in shared passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.memory import Memory, State
from deepthink_cli.method import Method
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations


def think_in_step(engine: Engine, thoughts: Sequence[tuple[TokenizedDemonstrations, Method]]) -> Iterator[list[Memory]]:
    """Yield all memories after every reading, up to the smallest T: the same as calling `think` for each.

    Demonstrations that occur several times, with several methods, are read once for T = 1. The caller may clear the
    yielded list, which frees memory for the next reading.
    """
    texts = [demonstrations.token_ids for demonstrations, _ in thoughts]
    starts = [method.start(len(ids)) for ids, (_, method) in zip(texts, thoughts, strict=True)]
    distinct = list(dict.fromkeys(texts))
    first = dict(zip(distinct, engine.read(list(map(Reading, distinct))), strict=True))
    histories = [
        replace(first[read.token_ids], provenance=Provenance(engine.identity, read, method))
        for read, method in thoughts
    ]
    del first
    yield list(histories)
    states: list[State] = [()] * len(thoughts)
    for _ in range(2, min(method.iterations for _, method in thoughts) + 1):
        presents = engine.read(list(map(Reading, texts, histories, starts)))  # Eq. 2 and 3
        for n, (_, method) in enumerate(thoughts):
            histories[n], states[n] = histories[n].updated(presents[n], method.update, states[n])  # Eq. 4
        yield list(histories)  # Eq. 5
