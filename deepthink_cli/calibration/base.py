"""The interface of calibrations, and the properties that say where each can be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from deepthink_cli.errors import InputError, option
from deepthink_cli.registry import loaded
from deepthink_cli.scoring.softmax import log_softmax

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from deepthink_cli.corrections import Centroids

    Floats = NDArray[float64]


Basis = Literal["content-free", "domain", "premise", "batch", "labelled"]
Estimate = Callable[..., "Floats"]
FEWEST = 20  # rows for a bias; among fewer, each row changes the labels of the others much


@dataclass(frozen=True)
class Calibration:
    """A calibration, by its name in `--calibrate`.

    `basis` are the inputs from which the bias is estimated: fixed texts without content, random words of the
    demonstrations, a prompt without the input, the inputs themselves, or rows with their true labels. `estimate` turns
    the normalised log-probabilities (m, C) of these inputs into log b (C,); with true labels, it also takes their
    places (m,). It is a function, or the place of one (`module:function`). `own_candidates`: the calibration is defined
    if every query has candidates of its own. `averaged`: b is a mean over the inputs, so that the estimates of several
    batches can be averaged.

    With `centroids`, there is no bias: `estimate` turns the hidden states (n, W) of inputs, the states (m, W) of the
    rows for the estimate, and the places (m,) of their true labels into scores (n, C). `centroids` makes the centroids
    that a memory stores, as `scoring.centroids.centroids_of` does.
    """

    name: str
    estimate: Estimate | str
    basis: Basis
    summary: str
    source: str
    own_candidates: bool = False
    averaged: bool = False
    centroids: Callable[..., Centroids] | str | None = None

    @property
    def of_states(self) -> bool:
        """Whether it compares hidden states, and has no bias."""
        return self.centroids is not None

    def bias(self, logs: Floats, gold: Sequence[int] | None = None) -> Floats:
        """log b (C,), from the log-probabilities (m, C) of the basis.

        `gold` (m,) are the places of the true labels, for a calibration that needs them.
        """
        return loaded(self.estimate)(logs) if gold is None else loaded(self.estimate)(logs, gold)

    def corrected(self, scores: Any, basis: Any = None, gold: Sequence[int] | None = None) -> Floats:
        """log p(y | x) - log b(y) (n, C), from scores in nats (n, C) and the scores (m, C) of the `basis` of b.

        Without a basis, b is estimated from the scores themselves. `gold` (m,) are the places of the true labels of the
        basis, if needed. With `centroids`, both are hidden states.
        """
        if self.of_states:
            scored: Floats = loaded(self.estimate)(scores, basis, gold)
            return scored
        logs = log_softmax(scores)
        return logs - self.bias(logs if basis is None else log_softmax(basis), gold)

    def check_count(self, rows: int) -> None:
        """Raise InputError for too few rows, if the bias is estimated from rows.

        After a correction by a single row, for instance, its labels are always equally likely.
        """
        if not self.from_rows or rows >= FEWEST:
            return
        given = {0: "there are none", 1: "there is only 1"}.get(rows, f"there are only {rows}")
        raise InputError(
            f"{option('calibrate')} {self.name}: the bias is estimated from rows, and {given}; give {FEWEST} or more, "
            "store the bias of other rows in the memory with deepthink calibrate MEMORY ROWS, or use contextual"
        )

    @property
    def from_rows(self) -> bool:
        """Whether the bias is estimated from rows, which must have the same labels."""
        return self.basis in ("batch", "labelled")

    @property
    def labelled(self) -> bool:
        """Whether the bias is estimated from rows with their true labels."""
        return self.basis == "labelled"
