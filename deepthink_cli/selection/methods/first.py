"""The first rows of the split."""

from __future__ import annotations

import random

from deepthink_cli.selection.base import Choice, Pool


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the first rows, in their order, independently of the seed."""
    return Choice(range(shots), ordered=True)
