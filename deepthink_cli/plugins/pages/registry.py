"""What this plugin adds, named without importing torch: two formats of a report, and the observer of `--html`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from deepthink_cli.observers import Observer
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.report.registry import Format


class PageOptions(Options):
    """The file of the page."""

    html: Annotated[
        Path | None,
        Flag(
            OUTPUT,
            "Also write a page for a browser, as one file: tables, curves and a browser of samples.",
            "FILE",
            variable=False,
        ),
    ] = None


_HERE = "deepthink_cli.plugins.pages"
_DRAWN = "https://github.com/leeoniya/uPlot"
HTML = Format(f"{_HERE}.of_runs:write_report", "a page for a browser", _DRAWN, suffixes=(".html",))
EEE = Format(
    f"{_HERE}.every_eval_ever:write_report",
    "a folder of records in the schema of Every Eval Ever",
    "https://github.com/evaleval/every_eval_ever",
    is_folder=True,
    without=("published", "all_tasks"),
)
PAGES = Observer(
    ("eval",),
    PageOptions,
    f"{_HERE}.of_evaluation:check",
    f"{_HERE}.of_evaluation:PageWriter",
    "--html of eval: a page for a browser",
    _DRAWN,
)
