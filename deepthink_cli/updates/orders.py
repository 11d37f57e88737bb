"""Ablations: the gate of the paper, with another order of the demonstrations in every reading after the first.

What is stored does not move: keys and values of a token are blended with those of the same token of the same
demonstration, wherever it stood in the reading (`deepthink_cli/rereading.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from deepthink_cli.updates.gate import Gate


@dataclass(frozen=True)
class Rotated(Gate):
    """Every reading begins with the demonstration after the one that began the last reading."""

    source = "this project"

    def order(self, iteration: int, demonstrations: int) -> Sequence[int]:
        """The order of the first reading, rotated by t - 1 demonstrations."""
        first = (iteration - 1) % demonstrations
        return [*range(first, demonstrations), *range(first)]


@dataclass(frozen=True)
class Shuffled(Gate):
    """Every reading has a random order of its own, which depends on `seed` and t alone."""

    source = "this project"

    seed: Annotated[int, Field(ge=0)] = 0

    def order(self, iteration: int, demonstrations: int) -> Sequence[int]:
        """A random order."""
        return random.Random(f"order {self.seed} {iteration}").sample(range(demonstrations), demonstrations)
