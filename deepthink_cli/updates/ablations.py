"""Ablations of the gate: on one part, in some layers, by the reading, or with another order of the demonstrations.

Layers count from 0. Schedules begin with eta in the second reading, the first that is gated. If a rule changes the
order, the memory keeps its order: a token's keys and values are blended with the same token's keys and values, wherever
its demonstration stood in the reading (`rereading.py`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from deepthink_cli.errors import InputError
from deepthink_cli.updates.base import Place
from deepthink_cli.updates.gate import Gate


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


Share = Annotated[float, Field(ge=0, le=1)]
LayerNumber = Annotated[int, Field(ge=0)]


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
class LayerRange(Gate):
    """The gate in the layers `first` to `last`, both included; the others keep the first reading."""

    source = "this project"

    first: LayerNumber = 0
    last: LayerNumber = 0

    def eta_at(self, place: Place) -> float:
        """Eta in the range, 0 elsewhere; raises InputError for a range that the model does not have."""
        if not self.first <= self.last < place.layers:
            raise InputError(
                f"update rule layer-range:first={self.first},last={self.last}: not a range of this model's layers, "
                f"which are 0 to {place.layers - 1}"
            )
        return self.eta if self.first <= place.layer <= self.last else 0.0


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
