"""Options of a stored memory: which iteration, with which corrections and other memories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE
from deepthink_cli.options import METHOD, Flag

IterationChoice = Annotated[str, Flag(METHOD, "Which kept iteration to use: a number, last, or all.", "T|all")]
Calibrate = Annotated[
    str | None,
    Flag(
        METHOD,
        f"Correct the scores for a bias toward some labels: {', '.join((NONE, *CALIBRATIONS))}; "
        "of several, the first gives the label.",
        "NAME,...",
        complete="calibrations",
    ),
]
EnsembleFiles = Annotated[
    list[Path] | None,
    Flag(
        METHOD,
        "Another memory of the same model, template and labels: average the log-probabilities. Repeatable.",
        "FILE",
        variable=False,
    ),
]
