"""Published figures, which a report shows beside its own figures, by the name of their publication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.registry import Registry, instance_of

if TYPE_CHECKING:
    from deepthink_cli.report.cells import PublishedFigure, ReportLine
    from deepthink_cli.report.tables import TableRow


@dataclass(frozen=True)
class Published:
    """Published figures, which `report --published` shows next to a run's figures.

    `find` gives the figures of a row, for plain in-context learning and for Deep-Thinking, or None. `notes` gives lines
    below the tables about the rows with published figures, or about their absence. Both are functions, or places of
    functions (`module:function`).
    """

    find: Callable[[TableRow], tuple[PublishedFigure | None, PublishedFigure | None]] | str
    notes: Callable[[Sequence[ReportLine]], Sequence[str]] | str
    summary: str
    source: str


PUBLISHED: Registry[Published] = Registry("published", {}, instance_of(Published))
