"""Ablations: a gate that depends on the reading; all begin with eta in the second reading, the first that is gated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from deepthink_cli.updates.base import Place
from deepthink_cli.updates.gate import Gate


@dataclass(frozen=True)
class InverseTime(Gate):
    """The gate eta / n at the n-th update, n = t - 1; with eta = 1 the memory is the mean of readings 2 to t."""

    source = "this project"

    def eta_at(self, place: Place) -> float:
        """Eta / (t - 1)."""
        return self.eta / (place.iteration - 1)


@dataclass(frozen=True)
class Cosine(Gate):
    """A gate that falls from eta to 0 along half a cosine, over T = `readings` readings; 0 in later ones.

    `readings` does not follow the number of readings that are made, so that the memory after t of them is the same
    whatever T is.
    """

    source = "this project"

    readings: Annotated[int, Field(ge=2)] = 15

    def eta_at(self, place: Place) -> float:
        """Eta (1 + cos(pi (t - 2) / (readings - 1))) / 2."""
        passed = min(1.0, (place.iteration - 2) / (self.readings - 1))
        return self.eta * (1 + math.cos(math.pi * passed)) / 2
