"""The option of the correction that a memory stores."""

from __future__ import annotations

from typing import Annotated

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE, THRESHOLDS, calibration, from_texts
from deepthink_cli.errors import InputError
from deepthink_cli.options import METHOD, Flag, Options, named_by

_TEXTS = ", ".join(from_texts(CALIBRATIONS.own))


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
