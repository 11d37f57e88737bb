"""The option that also logs the rows of a run to an experiment tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.options import OUTPUT

if TYPE_CHECKING:
    from deepthink_cli.integrations.tracking import Tracking
    from deepthink_cli.workflows.events import RunObserver, Tell
    from deepthink_cli.workflows.prepared import PreparedRun

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


def tracked(progress: RunObserver, tracking: Tracking | None, runs: Sequence[PreparedRun], tell: Tell) -> RunObserver:
    """An observer of runs into one folder that shows their progress, and logs their rows if a tracker is named."""
    from deepthink_cli.integrations.tracking import tracker_of
    from deepthink_cli.workflows.events import Observers

    return progress if tracking is None or not runs else Observers(progress, tracker_of(tracking, runs, tell))
