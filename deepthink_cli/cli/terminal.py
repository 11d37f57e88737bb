"""The output to a terminal: every text passes `visible`; only the program's own colours and bars steer it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO, cast

from deepthink_cli.io.text import visible

if TYPE_CHECKING:
    from rich.console import Console


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
