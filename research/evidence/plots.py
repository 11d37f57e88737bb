"""The picture of docs/evidence.md."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from deepthink_cli.plugins.plots.figures import Dot, dots_figure
from deepthink_cli.report.style import COLUMN
from research.style import MORE_LABELS, OWN_LABELS, THINKS
from research.table1.page import dot

from .discrimination import LARGE_STEP, PRIMARY, Compared
from .words import short_name

GROUPS = {"thinking": THINKS, "own labels": OWN_LABELS, "further labels": MORE_LABELS}


def question(found: Sequence[Compared]) -> Figure:
    """The lines of the table by the two measures that decide."""

    def line(each: Compared, name: str) -> Dot:
        group = "thinking" if each.thinks else "further labels" if each.labels else "own labels"
        return dot(short_name(each.name), each.differences[name], group)

    drawn = [each for each in found if each.name != LARGE_STEP]  # its losses would leave no room for the others
    panels = {name: [line(each, name) for each in drawn] for name in PRIMARY}
    return dots_figure(panels, "difference (points), 95 % intervals", GROUPS, COLUMN, one_scale=False)
