"""The form of figure of this plugin, named without importing matplotlib."""

from __future__ import annotations

from typing import Literal

from deepthink_cli.report.registry import FigureForm, FigureOptions


class CurvesOptions(FigureOptions):
    """What `deepthink plot` draws: accuracy over T, or its `difference` from T = 1."""

    kind: Literal["curves"]
    difference: bool = False


CURVES = FigureForm(
    CurvesOptions,
    "deepthink_cli.plugins.study.figures:curves_of_study",
    "accuracy over T, or its difference from T = 1",
    "deepthink plot",
)
