"""The observer of this plugin: `--log` of runs and studies."""

from __future__ import annotations

from typing import Annotated

from deepthink_cli.observers import Observer
from deepthink_cli.options import OUTPUT, Flag, Options


class LogOptions(Options):
    """The tracker; no variable of the environment, as nothing is sent unless the command or its config file says so."""

    log: Annotated[
        str | None,
        Flag(
            OUTPUT,
            "Also log every row to a tracker: trackio:PROJECT or wandb:PROJECT. Default: nothing is logged.",
            "SERVICE:PROJECT",
            variable=False,
        ),
    ] = None


_HERE = "deepthink_cli.plugins.trackers.tracking"
TRACKERS = Observer(
    ("run",),
    LogOptions,
    f"{_HERE}:check",
    f"{_HERE}:Tracker",
    "--log of run: a tracker that is told of every row",
    "https://github.com/gradio-app/trackio, https://github.com/wandb/wandb",
)
