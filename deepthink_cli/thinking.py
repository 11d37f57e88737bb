"""Deep-Thinking: equations 2 to 5 of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.memory import Memory, State
from deepthink_cli.method import Method
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations
from deepthink_cli.rereading import reread


def think(engine: Engine, demonstrations: TokenizedDemonstrations, method: Method | None = None) -> Iterator[Memory]:
    """Read the demonstrations T times and yield the memory after every reading (section 3.1).

    The first reading is stored unchanged: T = 1 is plain in-context learning. In every later one each layer attends
    to [history ; present] (Eq. 3); then the update rule moves the history toward the present (Eq. 4), in float32.
    Only ablations change the order of the demonstrations from one reading to the next.
    The default method is the paper's: T = 5 and a gate of eta = 0.01.
    """
    method = method or Method()
    (first,) = engine.read([Reading(demonstrations.token_ids)])  # of L tokens
    history = replace(first, provenance=Provenance(engine.identity, demonstrations, method))
    state: State = ()
    yield history  # keys and values of every layer, (kv_heads, L, head_dim)
    for iteration in range(2, method.iterations + 1):
        again = reread(engine.tokenizer, demonstrations, method, iteration)
        (present,) = engine.read([Reading(again.token_ids, history, again.start)])  # Eq. 2 and 3
        history, state = history.updated(again.in_first_order(present), method.update, state)  # Eq. 4
        yield history  # Eq. 5
