"""The interface of a calibration: an estimate of a memory's bias toward each label, which is taken off the scores.

All are one correction of the same raw scores, log p(y | x) - log b(y), computed in float64 from the probabilities that
the labels have among themselves. They differ in b, and in the inputs that it is estimated from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:  # the names of the methods are shown in help pages, which are instant
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]

Basis = Literal["content-free", "domain", "premise", "batch"]
Estimate = Callable[["Floats"], "Floats"]


@dataclass(frozen=True)
class Calibration:
    """A calibration, as the documentation lists it.

    `basis` are the inputs from which the bias is estimated: fixed texts without content, random words of the
    demonstrations, a prompt without the input, or the inputs themselves. `estimate` turns the normalised
    log-probabilities (m, C) of those inputs into log b (C,); it is a function, or where it is found
    (`module:function`). With `own_candidates`, it is defined if every query has candidates of its own; `averaged`, if b
    is a mean over the inputs, so that the estimates from several batches can be averaged.
    """

    estimate: Estimate | str
    basis: Basis
    summary: str
    source: str
    own_candidates: bool = False
    averaged: bool = False

    def bias(self, logs: Floats) -> Floats:
        """log b (C,), given the log-probabilities (m, C) of the inputs that it is estimated from."""
        if not isinstance(self.estimate, str):
            return self.estimate(logs)
        module, _, name = self.estimate.partition(":")
        return cast(Estimate, getattr(import_module(module), name))(logs)

    @property
    def from_rows(self) -> bool:
        """Whether the bias is estimated from the inputs themselves, which must have the same labels."""
        return self.basis == "batch"


def normalised(scores: Any) -> Floats:
    """Log-probabilities (n, C) among the labels, in float64, of scores in nats."""
    import numpy as np

    logs: Floats = np.asarray(scores, dtype=np.float64)
    return logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)
