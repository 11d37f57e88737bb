"""Rows drawn uniformly."""

from __future__ import annotations

import random

from deepthink_cli.selection.base import Choice, Pool


def choose(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw rows without replacement, each with the same probability, in random order."""
    return Choice(draw.sample(range(len(pool)), shots), ordered=True)
