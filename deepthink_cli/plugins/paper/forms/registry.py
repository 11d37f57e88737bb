"""The forms by their kind, and drawing one into files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.figure import CurvesForm, Form
from deepthink_cli.plugins.paper.forms.compared import draw_bars, draw_lines, draw_violins
from deepthink_cli.plugins.paper.forms.iterations import draw_iterations
from deepthink_cli.plugins.paper.forms.table import draw_table
from deepthink_cli.report.curves import panels, with_gains
from deepthink_cli.report.figures import ACCURACY, DIFFERENCE, draw, save
from deepthink_cli.report.job_results import JobResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS: dict[str, Callable[[Any, Sequence[JobResults]], Figure]] = {
    "table": draw_table,
    "bars": draw_bars,
    "lines": draw_lines,
    "violins": draw_violins,
    "iterations": draw_iterations,
}


def draw_form(form: Form, jobs: Sequence[JobResults], files: Mapping[Path, str]) -> None:
    """Draw the figure of a study into every file; raises InputError if it has no rows to draw yet."""
    if not isinstance(form, CurvesForm):
        save(lambda: FORMS[form.kind](form, jobs), files)
        return
    shown = with_gains(panels(jobs)) if form.difference else panels(jobs)
    if not shown:
        raise InputError("figure: no seed has rows at every T, T = 1 included; continue the study")
    draw(shown, files, DIFFERENCE if form.difference else ACCURACY)
