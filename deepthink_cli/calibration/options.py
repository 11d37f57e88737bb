"""The options of the correction, and of the weight of the first token, that a memory stores."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE, THRESHOLDS, calibration, from_texts
from deepthink_cli.corrections import LARGEST_WEIGHT, LEAST_WEIGHT
from deepthink_cli.errors import InputError
from deepthink_cli.options import METHOD, Flag, Options, named_by

_TEXTS = ", ".join(from_texts(CALIBRATIONS.own))


Criterion = Literal["labels", "entropy"]  # ways to choose a weight of the first token
CRITERIA: tuple[Criterion, ...] = ("labels", "entropy")


def weight_or_criterion(text: str) -> float | Criterion:
    """A weight of the first token, or the name of a criterion that chooses one; raises InputError otherwise."""
    for criterion in CRITERIA:
        if text == criterion:
            return criterion
    with suppress(ValueError):
        if LEAST_WEIGHT <= (weight := float(text)) <= LARGEST_WEIGHT:
            return weight
    expected = f"{' or '.join(CRITERIA)}, or a weight from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
    raise InputError.of("first_token", text, f"give {expected}")


class FirstTokenOptions(Options):
    """The weight of the first token that is stored with a memory, or its criterion; None for no weight."""

    first_token: Annotated[
        Annotated[str, named_by(weight_or_criterion)] | None,
        Flag(
            METHOD,
            "Store a weight in place of a correction: every head's attention to the memory's first token is multiplied "
            "by it. labels chooses the weight by the true labels of ROWS, entropy by the most certain predictions of "
            "rows without labels, or give a number; 1 removes it.",
            "labels|entropy|G",
            variable=False,
        ),
    ] = None


def _known(name: str) -> object:
    return name in (NONE, THRESHOLDS) or calibration(name)


class CorrectionOptions(Options):
    """The calibration whose bias is stored with a memory; None if none is named."""

    calibrate: Annotated[
        Annotated[str, named_by(_known)] | None,
        Flag(
            METHOD,
            f"Store a correction of the scores for a bias toward some labels: {_TEXTS}. Others need rows: deepthink "
            "calibrate.",
            "NAME",
            variable=False,
        ),
    ] = None

    @property
    def of_texts(self) -> str | None:
        """The calibration, if one is named; raises InputError for a calibration that is estimated from rows."""
        if self.calibrate in (None, NONE):
            return None
        if self.calibrate == THRESHOLDS or not from_texts([str(self.calibrate)]):
            raise InputError.of(
                "calibrate",
                self.calibrate,
                f"use {_TEXTS} here, or run deepthink calibrate MEMORY ROWS when the memory is there",
            )
        return self.calibrate
