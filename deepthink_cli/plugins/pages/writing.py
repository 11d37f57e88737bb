"""Writing the page of an evaluation or of a report: the option `--html`, and the format `html` of a report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.report import EvaluationEnded, EvaluationStarted, RowPredicted
from deepthink_cli.events import Event, Note, Tell
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.text import size
from deepthink_cli.outputs import check_apart
from deepthink_cli.plugins.pages.registry import PageOptions
from deepthink_cli.report.registry import Reported

if TYPE_CHECKING:
    from deepthink_cli.plugins.pages.of_evaluation import Observed

SUFFIXES = (".html", ".htm")


def check(options: PageOptions, read: Sequence[str | Path], runs: Collection[Path]) -> None:
    """Raise InputError unless the page can be written, to a name that ends in .html, and as `check_apart` does."""
    assert options.html is not None
    if options.html.suffix.lower() not in SUFFIXES:
        raise InputError.of("html", options.html, "a page is HTML; end the name in .html")
    check_apart(options.html, read, "html", runs=runs)


class PageWriter:
    """Collects the events of an evaluation, and writes its page at the end."""

    def __init__(self, options: PageOptions, line: str, tell: Tell) -> None:
        assert options.html is not None
        self.path, self.line, self.tell = options.html, line, tell
        self._observed: Observed | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case EvaluationStarted(memory, calibrate):
                from deepthink_cli.plugins.pages.of_evaluation import Observed

                self._observed = Observed(len({1, *memory.iterations}), calibrate)
            case RowPredicted(prediction) if self._observed is not None:
                self._observed.add(prediction)
            case EvaluationEnded(report) if self._observed is not None:
                from deepthink_cli.plugins.pages.of_evaluation import page_of_evaluation
                from deepthink_cli.plugins.pages.page import render

                text = render(page_of_evaluation(report, self._observed, self.line))
                with writing(self.path, "html") as file:
                    file.write(text)
                self.tell(Note(f"wrote {self.path} ({size(self.path.stat().st_size)})"))


def write_report(reported: Reported, file: TextIO) -> None:
    """Write the page of a report."""
    from deepthink_cli.plugins.pages.of_runs import page_of_runs
    from deepthink_cli.plugins.pages.page import render

    file.write(render(page_of_runs(reported.page, reported.jobs, reported.line, reported.all_tasks)))
