"""Human-readable output: notes, progress and events on stderr, reports on stdout; data never passes through Rich.

Every text for a terminal passes `visible`: only the program's own colours and bars steer it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

import typer

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.text import json_line, named, printable, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.table import Table

    from deepthink_cli.cli.options import CommonArguments
    from deepthink_cli.events import Event, Progress

WIDTH = 120  # columns of reports that are written to a file or a pipe, and the maximum length of a cell
UNBOUNDED = 10_000


class Terminal:
    """A standard stream that is a terminal: data, messages and the output of libraries are written through it."""

    def __init__(self, stream: TextIO, kept: str) -> None:
        self.stream = stream
        self.kept = kept

    def write(self, text: str) -> int:
        """Write a text with its control characters shown, except the kept ones."""
        self.stream.write(visible(text, self.kept))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one text after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard_terminals() -> None:
    """Put a `Terminal` in the place of stdout and stderr if they are terminals; files and pipes are unchanged.

    On stderr, progress bars of libraries return to the start of their line.
    """
    if sys.stdout.isatty():
        sys.stdout = cast("TextIO", Terminal(sys.stdout, "\n\t"))
    if sys.stderr.isatty():
        sys.stderr = cast("TextIO", Terminal(sys.stderr, "\n\t\r"))


def screen(file: TextIO, **options: Any) -> Console:
    """A console of Rich, whose texts pass `visible`, also those of libraries that it prints above a bar."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for each in super().render(renderable, options):
                yield each if each.control else Segment(visible(each.text, "\n\t"), each.style)

    return Screen(file=file.stream if isinstance(file, Terminal) else file, **options)


def note(message: str, quiet: bool = False) -> None:
    """Print one line on stderr, unless `quiet`."""
    if not quiet:
        sys.stderr.write(printable(message) + "\n")
        sys.stderr.flush()


def write_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json_line(value))
    sys.stdout.flush()


def write_text(text: str) -> None:
    """Write text to stdout: line breaks and tabs as they are, other control characters escaped."""
    sys.stdout.write(visible(text, "\n\t"))
    sys.stdout.flush()


def report(*parts: str | Table, file: TextIO | None = None) -> None:
    """Print a report on stdout or to a file: one line for each text; tables are never truncated.

    In a terminal that is too narrow for a table, its cells wrap; in a file or a pipe every row is one line.
    """
    out = sys.stdout if file is None else file
    for part in parts:
        if isinstance(part, str):
            out.write(printable(part) + "\n")
            continue
        console = screen(out, markup=False, highlight=False, emoji=False, width=None if out.isatty() else WIDTH)
        needed = _widths(console, part)[1]
        if out.isatty() and needed > console.width:
            for column in part.columns:
                column.no_wrap, column.overflow = False, "fold"
            needed = _widths(console, part)[0]
        console.width = max(console.width, needed)
        console.print(part)
    out.flush()


def _widths(console: Console, content: Table) -> tuple[int, int]:
    """The least width of a table, in which every word is whole, and the width in which no cell wraps."""
    from rich.measure import Measurement

    measured = Measurement.get(console, console.options.update(max_width=UNBOUNDED), content)
    return measured.minimum, measured.maximum


def fits(content: Table) -> bool:
    """Whether stdout is no terminal, or a terminal in which no cell of the table wraps."""
    console = screen(sys.stdout)
    return not sys.stdout.isatty() or _widths(console, content)[1] <= console.width


def table(*columns: str, rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """A table without borders; the first `left` columns are aligned to the left, the others to the right."""
    from rich.table import Table

    layout = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        layout.add_column(printable(column, WIDTH), justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        layout.add_row(*(printable(cell, WIDTH) for cell in row))
    return layout


def progress(quiet: bool, *columns: str) -> Bar:
    """A progress bar on stderr, with the completed part and the elapsed time; `columns` are the task's fields."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = partial(TextColumn, markup=False)
    fields = [text("{task.fields[" + name + "]}") for name in columns]
    counted = [text("{task.completed}/{task.total}"), *fields, TimeElapsedColumn()]
    console = screen(sys.stderr, highlight=False)
    shown = [SpinnerColumn(), text("{task.description}"), BarColumn(bar_width=24), *counted]
    return Progress(*shown, console=console, disable=quiet or not console.is_terminal, transient=True)


def interval_bar(low: float, value: float, high: float, start: float, end: float, width: int) -> str:
    """A value and its interval, drawn on an axis from `start` to `end`, as in `  ├──●──┤   `."""
    left, place, right = (round((width - 1) * (each - start) / (end - start)) for each in (low, value, high))
    cells = [" "] * left + ["─"] * (right - left + 1) + [" "] * (width - 1 - right)
    cells[left], cells[right], cells[place] = "├", "┤", "●"
    return "".join(cells)


def counted(count: int, label: str) -> str:
    """The number of rows with a label, as in `3 World` and `3 '0'`."""
    return f"{count} {named(label)}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it: `12 s`, `4.5 minutes`, `7.2 hours`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


class Show:
    """Shows events while its block runs; `bar` says whether progress is shown at a terminal."""

    def __init__(self, common: CommonArguments, bar: bool = True) -> None:
        self.quiet, self.verbose, self.hidden = common.quiet, common.verbose, common.quiet or not bar
        self.bar: Bar | None = None
        self.what = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def __call__(self, event: Event) -> None:
        from deepthink_cli.events import Detail, Download, Note, Progress, Warn

        match event:
            case Detail(text):
                note(text, not self.verbose)
            case Download(text) if sys.stdin.isatty() and sys.stderr.isatty():
                self._stop()
                note(text)
                if not typer.confirm("Download it?", err=True):
                    raise DeepThinkError("nothing was downloaded; name a model that you have with -m")
            case Note(text):
                note(text, self.quiet and not self.verbose)
            case Warn(text):
                note(f"warning: {text}")
            case Progress():
                self._progress(event)

    def _progress(self, event: Progress) -> None:
        fields: dict[str, Any] = {name: printable(text, WIDTH) for name, text in event.fields.items()}
        if self.bar is None or self.what != event.what:
            self._stop()
            self.bar, self.what = progress(self.hidden, *event.fields), event.what
            self.task = self.bar.add_task(printable(event.what, WIDTH), total=event.total, **fields)
            self.bar.start()
        self.bar.update(self.task, completed=event.done, total=event.total, **fields)
        if event.done == event.total:
            self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
