"""The first rows of the split."""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepthink_cli.data.examples import Query


def choose(pool: Sequence[Query], shots: int, draw: random.Random) -> list[Query]:
    """Choose the first rows, in their order, independently of the seed."""
    return list(pool[:shots])
