"""Options of what is written beside a result: a page for a browser, a tracker."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.console import note
from deepthink_cli.errors import InputError
from deepthink_cli.io.text import size
from deepthink_cli.options import OUTPUT, Flag

if TYPE_CHECKING:
    from deepthink_cli.events import Tell
    from deepthink_cli.experiments.prepare import PreparedRun
    from deepthink_cli.plugins.pages.page import WebPage
    from deepthink_cli.plugins.trackers.tracking import Tracking


Html = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Also write a page for a browser, as one file: tables, curves and a browser of samples.",
        "FILE",
        variable=False,
    ),
]

SUFFIXES = (".html", ".htm")
ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())  # of the command line that runs


def command_line() -> str:
    """The command line that runs, as a shell takes it."""
    return shlex.join(["deepthink", *ARGUMENTS.get()])


def check_page(path: Path | None, read: Iterable[str | Path], runs: Collection[Path] = ()) -> None:
    """Raise InputError unless the page can be written, to a name that ends in .html, and as `check_apart` does."""
    from deepthink_cli.outputs import check_apart

    if path is not None:
        if path.suffix.lower() not in SUFFIXES:
            raise InputError.of("html", path, "a page is HTML; end the name in .html")
        check_apart(path, read, "html", runs=runs)


def write_page(page: WebPage, path: Path, quiet: bool) -> None:
    """Write a page to a file, and note its size; raises as `io.atomic.writing` does."""
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.plugins.pages.page import render

    text = render(page)
    with writing(path, "html") as file:
        file.write(text)
    note(f"wrote {path} ({size(path.stat().st_size)})", quiet)


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
    from deepthink_cli.plugins.trackers.tracking import Tracking

    return None if log is None else Tracking.checked(log)


def tracked(tell: Tell, tracking: Tracking | None, runs: Sequence[PreparedRun], quiet: bool) -> Tell:
    """Also shows the progress of runs into one folder, and logs their rows if a tracker is named."""
    from deepthink_cli.cli.run_progress import RunProgress
    from deepthink_cli.events import telling_all
    from deepthink_cli.plugins.trackers.tracking import tracker_of

    shown = telling_all(tell, RunProgress(quiet))
    return shown if tracking is None or not runs else telling_all(shown, tracker_of(tracking, runs, tell))
