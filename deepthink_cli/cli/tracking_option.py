"""The option that also logs the rows of a run to an experiment tracker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.options import OUTPUT

if TYPE_CHECKING:
    from deepthink_cli.integrations.tracking import Tracking
    from deepthink_cli.workflows.events import RunObserver, Tell

# No variable of the environment: nothing is sent unless the command or its config file says so.
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="SERVICE:PROJECT",
        rich_help_panel=OUTPUT,
        help="Also log every row to a tracker: trackio:PROJECT or wandb:PROJECT. Default: nothing is logged.",
        show_default=False,
    ),
]


def tracking_of(log: str | None) -> Tracking | None:
    """The tracker that `--log` names; raises InputError if it is not one or is not installed."""
    from deepthink_cli.integrations.tracking import Tracking

    return None if log is None else Tracking.checked(log)


def tracked(progress: RunObserver, tracking: Tracking | None, out: Path, tell: Tell) -> RunObserver:
    """An observer of a run that shows its progress, and logs its rows if a tracker is named."""
    from deepthink_cli.integrations.tracking import Tracker
    from deepthink_cli.workflows.events import Observers

    return progress if tracking is None else Observers(progress, Tracker(tracking, out, tell))
