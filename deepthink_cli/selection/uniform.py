"""Rows drawn uniformly."""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepthink_cli.data.examples import Query


def choose(pool: Sequence[Query], shots: int, draw: random.Random) -> list[Query]:
    """Draw rows without replacement, each with the same probability."""
    return draw.sample(pool, shots)
