"""The picture of docs/evidence.md, and that of docs/table1.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from deepthink_cli.plugins.study.figures import Dot, dots_figure
from research.style import MORE_LABELS, OWN_LABELS, THINKS

from .compared import LARGE_STEP, PRIMARY, Compared, Difference
from .words import short_name

LOOKS = {"thinking": THINKS, "no further labels": OWN_LABELS, "further labels": MORE_LABELS}
WIDTH = 5.0  # inches
AXIS = "difference (points), 95 % intervals"


def question(found: Sequence[Compared]) -> Figure:
    """The lines of docs/evidence.md by the two measures that decide."""
    drawn = [each for each in found if each.name != LARGE_STEP]  # its losses would leave no room for the others
    panels = {name: [_dot(each, each.differences[name]) for each in drawn] for name in PRIMARY}
    return dots_figure(panels, AXIS, LOOKS, WIDTH, one_scale=False)


def methods(found: Mapping[str, Sequence[tuple[Compared, Difference]]]) -> Figure:
    """What methods change, in a panel for each kind of scores."""
    panels = {kind: [_dot(each, change) for each, change in of_kind] for kind, of_kind in found.items()}
    return dots_figure(panels, AXIS, LOOKS, WIDTH)


def _dot(each: Compared, change: Difference) -> Dot:
    """Without an interval that has no end, as that of one seed."""
    group = "thinking" if each.thinks else "further labels" if each.more_labels else "no further labels"
    ends = change.interval if np.isfinite(change.interval).all() else None
    return Dot(short_name(each.name), change.mean, ends, group)
