"""Update rules that gate one part, some layers, or some readings.

Layers count from 0. Schedules begin with eta in the second reading, the first that is gated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from deepthink_cli.io.records import Share
from deepthink_cli.updates import Gate, Place


@dataclass(frozen=True)
class KeysOnly(Gate):
    """The gate on keys; values stay those of the first reading: V~_t = V_1."""

    source = "this project"

    def eta_at(self, place: Place) -> float:
        """Eta for keys, 0 for values."""
        return self.eta if place.part == "keys" else 0.0


@dataclass(frozen=True)
class ValuesOnly(Gate):
    """The gate on values; keys stay those of the first reading: K~_t = K_1."""

    source = "this project"

    def eta_at(self, place: Place) -> float:
        """Eta for values, 0 for keys."""
        return self.eta if place.part == "values" else 0.0


@dataclass(frozen=True)
class LayerRamp(Gate):
    """A share of eta that is `first` in layer 0 and `last` in the last layer, and changes linearly between them."""

    source = "this project"

    first: Share = 0.0
    last: Share = 1.0

    def eta_at(self, place: Place) -> float:
        """Eta (first + (last - first) layer / (layers - 1)); `last` in a model of one layer."""
        depth = place.layer / (place.layers - 1) if place.layers > 1 else 1.0
        return self.eta * (self.first + (self.last - self.first) * depth)


@dataclass(frozen=True)
class LowerHalf(Gate):
    """The gate in the lower half of the layers, without the middle one of an odd number; the others do not change."""

    source = "this project"

    def eta_at(self, place: Place) -> float:
        """Eta below half of the depth, 0 above."""
        return self.eta if 2 * (place.layer + 1) <= place.layers else 0.0


@dataclass(frozen=True)
class UpperHalf(Gate):
    """The gate in the upper half of the layers, with the middle one of an odd number; the others do not change."""

    source = "this project"

    def eta_at(self, place: Place) -> float:
        """Eta above half of the depth, 0 below."""
        return self.eta if 2 * (place.layer + 1) > place.layers else 0.0


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
