"""What people see: notes and progress on stderr, reports on stdout; data never passes through Rich."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

WIDTH = 120  # of reports that go to a file or a pipe
UNBOUNDED = 10_000


def note(message: str, quiet: bool = False) -> None:
    """Say something to a person, on stderr."""
    if not quiet:
        sys.stderr.write(message + "\n")
        sys.stderr.flush()


def json_line(value: Any) -> str:
    """One line of JSON; text stays readable, and what JSON lacks (a Parquet date) becomes a string."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def write_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json_line(value))
    sys.stdout.flush()


def report(*parts: str | Table, file: TextIO | None = None) -> None:
    """Print a report for people, on stdout or to a file: lines as they are, tables laid out and never cut."""
    out = sys.stdout if file is None else file
    for part in parts:
        if isinstance(part, str):
            out.write(part + "\n")
        else:
            _console(out, part).print(part)
    out.flush()


def _console(out: TextIO, content: Table) -> Console:
    """A console as wide as what it is to show: a terminal wraps what is too wide, Rich would crop it."""
    from rich.console import Console
    from rich.measure import Measurement

    made = Console(file=out, markup=False, highlight=False, emoji=False, width=None if out.isatty() else WIDTH)
    needed = Measurement.get(made, made.options.update(max_width=UNBOUNDED), content).maximum
    made.width = max(made.width, needed)
    return made


def table(*columns: str, rows: Sequence[Sequence[str]]) -> Table:
    """A plain table; the first column is to the left, the others to the right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def progress(quiet: bool, *columns: str) -> Progress:
    """A progress bar on stderr; `columns` are field names of the task, shown as they change."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = [TextColumn("{task.fields[" + column + "]}", markup=False) for column in columns]
    console = Console(stderr=True, highlight=False)
    return Progress(SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
                    TextColumn("{task.completed}/{task.total}"), *shown, TimeElapsedColumn(),
                    console=console, disable=quiet or not console.is_terminal, transient=True)  # fmt: skip


def bar(share: float, low: float, high: float, width: int = 20) -> str:
    """A bar for `share` on a scale from `low` to `high`."""
    filled = round(width * (share - low) / (high - low)) if high > low else width
    return "█" * filled + "·" * (width - filled)


def size(count: int) -> str:
    """A number of bytes for people."""
    if count < 1024:
        return f"{count} B"
    power = min(4, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"
