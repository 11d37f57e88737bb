"""Events that workflows report while they run: a caller may show, log or ignore them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepthink_cli.experiments.executors.messages import JobInfo
    from deepthink_cli.experiments.results import Result


@dataclass(frozen=True)
class Detail:
    """A message for users who asked for details (--verbose)."""

    text: str


@dataclass(frozen=True)
class Note:
    """A message for users, hidden by --quiet."""

    text: str


@dataclass(frozen=True)
class Download(Note):
    """A note of a download that a memory asks for, and not the user: who shows it may ask, and raise at a no."""


@dataclass(frozen=True)
class Warn:
    """A warning, which is always shown."""

    text: str


@dataclass(frozen=True)
class Progress:
    """Progress of a task: `done` of `total` (None if unknown) steps; `fields` are further values by name."""

    what: str
    done: int
    total: int | None
    fields: Mapping[str, str] = field(default_factory=dict)


Event = Detail | Note | Warn | Progress
Tell = Callable[[Event], None]


def warning_of(tell: Tell) -> Callable[[str], None]:
    """A function that tells a text as a warning."""
    return lambda text: tell(Warn(text))


def silent(event: Event) -> None:
    """Ignore an event."""


class RunObserver:
    """Callbacks for the progress of a run; each does nothing unless a subclass overrides it.

    Jobs that start together are done together; with several workers, other jobs may start before they are done.
    """

    def begin(self, jobs: int, inputs: int) -> None:
        """Called when the number of jobs with missing rows, and of the inputs to score for them, is known.

        Called again for those of every further model.
        """

    def start(self, jobs: Sequence[JobInfo]) -> None:
        """Called when jobs of one task start together."""

    def scored(self, job: JobInfo, inputs: int) -> None:
        """Called when inputs of a job were scored; a negative number takes back those of a worker that died."""

    def row(self, job: JobInfo, row: Result) -> None:
        """Called when a row of a job was written."""

    def finish(self, jobs: Sequence[JobInfo]) -> None:
        """Called when jobs are done."""

    def end(self) -> None:
        """Called when the run is done, or was stopped by an error or an interrupt."""


class Observers(RunObserver):
    """Passes every call on to several observers, in their order."""

    def __init__(self, *observers: RunObserver) -> None:
        self.observers = observers

    def begin(self, jobs: int, inputs: int) -> None:
        """Called when the number of jobs with missing rows, and of the inputs to score for them, is known."""
        for observer in self.observers:
            observer.begin(jobs, inputs)

    def start(self, jobs: Sequence[JobInfo]) -> None:
        """Called when jobs of one task start together."""
        for observer in self.observers:
            observer.start(jobs)

    def scored(self, job: JobInfo, inputs: int) -> None:
        """Called when inputs of a job were scored."""
        for observer in self.observers:
            observer.scored(job, inputs)

    def row(self, job: JobInfo, row: Result) -> None:
        """Called when a row of a job was written."""
        for observer in self.observers:
            observer.row(job, row)

    def finish(self, jobs: Sequence[JobInfo]) -> None:
        """Called when jobs are done."""
        for observer in self.observers:
            observer.finish(jobs)

    def end(self) -> None:
        """Called when the run is done, or was stopped by an error or an interrupt."""
        for observer in self.observers:
            observer.end()
