"""Published figures, which a report shows beside its own: by the name of their publication."""

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
    """Figures that were published, which `report --published` shows next to those of the run.

    `find` gives them for a row: those of plain in-context learning and of Deep-Thinking, None where there is none.
    `notes` are lines below the tables about the rows that have some, or for none. Both are functions, or where they are
    found (`module:function`).
    """

    find: Callable[[TableRow], tuple[PublishedFigure | None, PublishedFigure | None]] | str
    notes: Callable[[Sequence[ReportLine]], Sequence[str]] | str
    summary: str
    source: str


PUBLISHED: Registry[Published] = Registry("published", {}, instance_of(Published))
