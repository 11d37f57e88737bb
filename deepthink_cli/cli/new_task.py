"""`deepthink tasks new`: write a task file from a file of rows."""

from __future__ import annotations

import shlex
from pathlib import Path

from deepthink_cli.cli.console import note, write_json
from deepthink_cli.data.rows import FormatName
from deepthink_cli.errors import InputError

NEW = "new"
EXAMPLE = "deepthink tasks new my_task --from data.csv"


def write_task(
    name: Path | None,
    rows: str | None,
    output: Path | None,
    label: str | None,
    row_format: FormatName | None,
    replace: bool,
    json: bool,
) -> None:
    """Write the task file; print what was guessed and the next commands."""
    from deepthink_cli.data.rows import RowSource
    from deepthink_cli.workflows.new_task import new_task

    if name is None or rows is None:
        missing = "name the task" if name is None else "--from: name the file of its rows"
        raise InputError(f"new: {missing}, as in: {EXAMPLE}")
    made = new_task(str(name), RowSource(rows, row_format), output, label, replace)
    guess, file = made.guess, shlex.quote(str(made.path))
    if json:
        labels = made.task.labels
        values = {"texts": list(guess.texts), "label": guess.label, "labels": labels, "unused": list(guess.unused)}
        write_json({"file": str(made.path), "task": made.task.name, "rows": guess.rows, **values})
    words = ", ".join(made.task.labels or ()) or f"candidates in {guess.candidates}"
    note(f"wrote {made.path} ({guess.rows:,} rows; text: {', '.join(guess.texts)}; label: {guess.label}; {words})")
    note(f"next: edit it, then: deepthink tasks {file}    and: deepthink think --task {file} -m MODEL")
