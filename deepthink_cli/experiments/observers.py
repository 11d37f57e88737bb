"""Callbacks for the progress of a run: a caller may show, log or ignore it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the messages of workers hold units of jobs, and those need torch
    from deepthink_cli.experiments.executors.messages import JobInfo
    from deepthink_cli.experiments.results import Result


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
