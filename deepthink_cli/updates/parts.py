"""Ablations: the gate on the keys alone, or on the values alone."""

from __future__ import annotations

from dataclasses import dataclass

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
