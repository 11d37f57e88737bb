"""`deepthink report --format eee`: write the results of runs as records of Every Eval Ever."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.cli.console import note
from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from deepthink_cli.report.job_results import JobResults


def check_records(output: Path | None, runs: Collection[Path], **options: object) -> None:
    """Raise InputError unless records can be written to a folder, or for one of the `options` that they do not have."""
    from deepthink_cli.workflows.outputs import check_folder_apart

    for name, value in options.items():
        if value:
            raise InputError(f"--{name}: is about tables, and --format eee writes none; omit it")
    if output is None:
        raise InputError("--format eee: writes a folder; name it, as in -o records")
    check_folder_apart(output, runs)


def write_evaluations(jobs: Sequence[JobResults], folder: Path, iteration: int | None, quiet: bool) -> None:
    """Write the records of all jobs, and note how many."""
    from deepthink_cli.report.every_eval_ever import write_records

    written = write_records(jobs, folder, int(time.time()), iteration)
    note(f"wrote {len(written)} records below {folder / 'data'}", quiet)
