"""Deep-Thinking: equations 2 to 5 of the paper, for any number of demonstration sets at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deepthink_cli.engine.base import Engine, read_texts
from deepthink_cli.memory import Memory, State
from deepthink_cli.method import Method
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations

Thought = tuple[TokenizedDemonstrations, Method]  # demonstrations, and the method by which they are read


def think(engine: Engine, demonstrations: TokenizedDemonstrations, method: Method | None = None) -> Iterator[Memory]:
    """Read the demonstrations T times and yield the memory after every reading (section 3.1).

    The first reading is stored unchanged: T = 1 is plain in-context learning. In every later reading each layer attends
    to [history ; present] (Eq. 3); then the update rule moves the history toward the present (Eq. 4), in float32. The
    default method is the paper's: T = 5 and a gate of eta = 0.01.
    """
    for memories in think_together(engine, [(demonstrations, method or Method())]):
        yield memories.pop()


def think_together(engine: Engine, thoughts: Sequence[Thought]) -> Iterator[list[Memory]]:
    """Read several sets of demonstrations, each by its method, and yield all memories after every reading.

    All sets are read in shared passes, up to the smallest T; a set that several methods share is read once for T = 1,
    and once for T = 2 at the same positions. The caller may clear the yielded list, which frees memory for the next
    reading.
    """
    texts = [demonstrations.texts for demonstrations, _ in thoughts]
    starts = [method.start(len(demonstrations.token_ids)) for demonstrations, method in thoughts]
    origin = [Provenance(engine.identity, read, method) for read, method in thoughts]
    first = read_texts(engine, texts)  # keys and values of every layer, (kv_heads, L, head_dim)
    histories = [replace(memory, provenance=each) for memory, each in zip(first, origin, strict=True)]
    del first
    states: list[State] = [()] * len(thoughts)
    yield list(histories)
    for _ in range(2, min(method.iterations for _, method in thoughts) + 1):
        presents = read_texts(engine, texts, histories, starts)  # Eq. 2 and 3
        for n, (_, method) in enumerate(thoughts):
            histories[n], states[n] = histories[n].updated(presents[n], method.update, states[n])  # Eq. 4
        yield list(histories)  # Eq. 5
