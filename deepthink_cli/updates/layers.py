"""Ablations: a gate that depends on the layer, which counts from 0 to the number of layers less 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from deepthink_cli.errors import InputError
from deepthink_cli.updates.base import Place
from deepthink_cli.updates.gate import Gate

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
