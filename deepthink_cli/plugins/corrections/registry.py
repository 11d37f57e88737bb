"""The calibrations of this plugin, which are named without importing numpy."""

from __future__ import annotations

from deepthink_cli.calibration.registry import Calibration

_HERE = "deepthink_cli.plugins.corrections.estimates"
PRIOR = Calibration(
    "prior",
    f"{_HERE}:log_matched",
    "batch",
    "the bias without which all labels are equally likely over the inputs",
    "Saerens et al. 2002, Neural Computation 14(1)",
)
CENTROID = Calibration(
    "centroid",
    f"{_HERE}:nearest_mean",
    "labelled",
    "the label whose rows' mean hidden state is nearest (deepthink calibrate, tune)",
    "Cho et al. 2025, arXiv 2406.16535",
    of_states=True,
)
