"""Show the events of a workflow: notes and warnings as lines on stderr, progress as a bar."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from deepthink_cli.cli.console import note, progress
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import DeepThinkError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from deepthink_cli.events import Event, Progress


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
        from deepthink_cli.events import Detail, Download, Note, Warn

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
            case _:
                self._progress(event)

    def _progress(self, event: Progress) -> None:
        fields: dict[str, Any] = dict(event.fields)
        if self.bar is None or self.what != event.what:
            self._stop()
            self.bar, self.what = progress(self.hidden, *event.fields), event.what
            self.task = self.bar.add_task(event.what, total=event.total, **fields)
            self.bar.start()
        self.bar.update(self.task, completed=event.done, **fields)
        if event.done == event.total:
            self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
