"""Deep-Thinking: the paper's equations 2 to 5, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from deepthink_cli.config import Positions
from deepthink_cli.memory import Memory
from deepthink_cli.model import LanguageModel
from deepthink_cli.origin import Demonstrations, Method, Origin


def think(
    model: LanguageModel,
    demonstrations: Demonstrations,
    iterations: int = 5,
    eta: float = 0.01,
    momentum: float = 0.0,
    positions: Positions = "continued",
) -> Iterator[Memory]:
    """Read the demonstrations T times and yield the memory after every reading (section 3.1).

    The first reading is stored as it is: T = 1 is plain in-context learning. In every later one each
    layer attends to [history ; present] (Eq. 3), which giving the history as past keys and values is;
    then the gate moves the history by eta toward the present (Eq. 4). Momentum is the official code's:
    m_t = (K_t - K~_(t-1)) + momentum m_(t-1), K~_t = K~_(t-1) + eta m_t; 0 is the paper. The gate
    accumulates in float32. `positions` places the present behind the history or in its place.
    """
    origin = Origin(model.identity, demonstrations, Method(iterations, eta, momentum, positions))
    start = len(demonstrations.token_ids) if positions == "continued" else 0
    history = replace(model.read(demonstrations.token_ids), origin=origin)  # (kv_heads, L, head_dim) a layer
    yield history
    step = None
    for _ in range(2, iterations + 1):
        present = model.read(demonstrations.token_ids, history, start)  # Eq. 2 and 3
        difference = history.toward(present)
        step = difference if step is None or momentum == 0 else difference.plus(step, momentum)
        history = history.moved(step, eta)  # Eq. 4
        yield history  # Eq. 5
