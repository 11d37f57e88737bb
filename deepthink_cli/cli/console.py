"""What people see: notes and progress on stderr, reports on stdout; data never passes through Rich."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task
    from rich.table import Table

WIDTH = 120  # of reports that go to a file or a pipe, and the most characters of a cell
UNBOUNDED = 10_000
LONGEST = 100_000  # characters of a line for people
# What steers a terminal, ends a line or turns the direction of writing; letters of any script are left alone.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, most: int = LONGEST) -> str:
    r"""Text as one line that is safe on a terminal: what would steer it becomes an escape such as \x1b or \u202e.

    The middle of a text of more than `most` characters is left out: the ends say what it is and the way out.
    """
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-(most // 2) :]}"
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(message: str, quiet: bool = False) -> None:
    """Say something to a person, in one line on stderr."""
    if not quiet:
        sys.stderr.write(printable(message) + "\n")
        sys.stderr.flush()


def json_line(value: Any) -> str:
    """One line of JSON; text stays readable, and what JSON lacks (a Parquet date) becomes a string.

    What would steer a terminal is escaped as JSON does: the same data to a program.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def write_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json_line(value))
    sys.stdout.flush()


def report(*parts: str | Table, file: TextIO | None = None) -> None:
    """Print a report for people, on stdout or to a file: a line for each text, tables laid out and never cut."""
    out = sys.stdout if file is None else file
    for part in parts:
        if isinstance(part, str):
            out.write(printable(part) + "\n")
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
        made.add_column(printable(column, WIDTH), justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(printable(cell, WIDTH) for cell in row))
    return made


def progress(quiet: bool, *columns: str, left: bool = False) -> Progress:
    """A progress bar on stderr; `columns` are field names of the task, shown as they change.

    Beside them stands how much is done and since when, or only the time that is `left`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn, TimeRemainingColumn

    shown = [_column("{task.fields[" + name + "]}") for name in columns]
    counted = [_column("{task.completed}/{task.total}"), *shown, TimeElapsedColumn()]
    ends = [*shown, TimeRemainingColumn(), _column("left")] if left else counted
    console = Console(stderr=True, highlight=False)
    return Progress(SpinnerColumn(), _column("{task.description}"), BarColumn(bar_width=24), *ends,
                    console=console, disable=quiet or not console.is_terminal, transient=True)  # fmt: skip


def _column(pattern: str) -> ProgressColumn:
    from rich.progress import TextColumn
    from rich.text import Text

    class Printable(TextColumn):
        """Text of a progress bar, where a task or a model may be named."""

        def render(self, task: Task) -> Text:
            return Text(printable(self.text_format.format(task=task), WIDTH))

    return Printable(pattern)


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
