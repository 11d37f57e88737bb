"""The interface of calibrations, and what each of them presupposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from deepthink_cli.errors import InputError, option
from deepthink_cli.registry import loaded
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]


Basis = Literal["content-free", "domain", "premise", "batch"]
Estimate = Callable[["Floats"], "Floats"]
FEWEST, FEW = 2, 20  # rows: a bias is estimated from the first at least, and a warning is due below the second


@dataclass(frozen=True)
class Calibration:
    """A calibration, as the documentation lists it, by its name in `--calibrate`.

    `basis` are the inputs from which the bias is estimated: fixed texts without content, random words of the
    demonstrations, a prompt without the input, or the inputs themselves. `estimate` turns the normalised
    log-probabilities (m, C) of those inputs into log b (C,); it is a function, or where it is found
    (`module:function`). With `own_candidates`, it is defined if every query has candidates of its own; `averaged`, if b
    is a mean over the inputs, so that the estimates from several batches can be averaged.
    """

    name: str
    estimate: Estimate | str
    basis: Basis
    summary: str
    source: str
    own_candidates: bool = False
    averaged: bool = False

    def bias(self, logs: Floats, others: int = 0) -> Floats:
        """log b (C,), given the log-probabilities (m, C) of the inputs that it is estimated from.

        The result will be averaged with the bias of so many `others`. Raises InputError as `warning` does.
        """
        self.warning(len(logs) + others)
        return loaded(self.estimate)(logs)

    def corrected(self, scores: Any, basis: Any = None) -> Floats:
        """log p(y | x) - log b(y) (n, C), of scores in nats (n, C), and of those (m, C) that b is estimated from.

        The second are the rows' own if none are given. Raises InputError as `warning` does.
        """
        logs = log_softmax(scores)
        return logs - self.bias(logs if basis is None else log_softmax(basis))

    def warning(self, rows: int) -> str | None:
        """A warning of a bias that is estimated from few rows; None if they suffice, or it needs none.

        Raises InputError for fewer rows than say anything of a bias: a single one always has the labels equally likely.
        """
        if not self.from_rows or rows >= FEW:
            return None
        told = f"{option('calibrate')} {self.name}: the bias is estimated from the rows themselves, and"
        if rows < FEWEST:
            given = "there is only 1" if rows else "there are none"
            raise InputError(f"{told} {given}; give {FEW} or more together, or use contextual")
        return f"{told} there are only {rows}, on each of which every label depends; give {FEW}, or use contextual"

    @property
    def from_rows(self) -> bool:
        """Whether the bias is estimated from the inputs themselves, which must have the same labels."""
        return self.basis == "batch"
