"""Progress of a run: jobs done, inputs per second, time left, and a line for every job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.cli.console import note, progress
from deepthink_cli.events import Event
from deepthink_cli.experiments.progress import (
    InputsScored,
    JobInfo,
    JobsDone,
    JobsPlanned,
    JobsStarted,
    RowWritten,
    RunEnded,
)
from deepthink_cli.io.text import printable
from deepthink_cli.updates.registry import brief

if TYPE_CHECKING:
    from rich.progress import Progress

    from deepthink_cli.experiments.results import Result


class RunProgress:
    """A progress bar over all inputs of a run, on stderr; without a terminal, only the lines of the jobs."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.done = self.inputs = self.jobs = self.total = self.running = 0
        self.bar: Progress | None = None
        self.shown: Any = None
        self.began: dict[JobInfo, float] = {}
        self.inputs_of: Counter[JobInfo] = Counter()
        self.first: dict[JobInfo, float] = {}
        self.last: dict[JobInfo, Result] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case JobsPlanned(jobs, inputs):
                self._begin(jobs, inputs)
            case JobsStarted(started):
                self._start(started)
            case InputsScored(job, inputs):
                self._scored(job, inputs)
            case RowWritten(job, row):
                self._row(job, row)
            case JobsDone(done):
                self._finish(done)
            case RunEnded() if self.bar is not None:
                self.bar.stop()

    def _begin(self, jobs: int, inputs: int) -> None:
        """Start the bar, or extend it by the jobs of another model."""
        self.jobs += jobs
        self.total += inputs
        if self.bar is not None:
            self.bar.update(self.shown, total=self.total)
            return
        self.bar = progress(self.quiet, "jobs", "speed", left=True)
        self.shown = self.bar.add_task("starting", total=self.total, jobs=f"job 1 of {self.jobs}", speed="")
        self.started = time.perf_counter()
        self.bar.start()

    def _start(self, jobs: Sequence[JobInfo]) -> None:
        """Show the jobs that start, and how many others are running."""
        self.began.update(dict.fromkeys(jobs, time.perf_counter()))
        numbers = f"job {self.done + 1} of {self.jobs}"
        if self.running:
            numbers = f"{self.running + len(jobs)} jobs at once, {self.done} of {self.jobs} done"
        elif len(jobs) > 1:
            numbers = f"jobs {self.done + 1}-{self.done + len(jobs)} of {self.jobs}"
        self.running += len(jobs)
        seeds = ", ".join(dict.fromkeys(str(job.seed) for job in jobs))
        named = jobs[0].label if len(jobs) == 1 else f"{jobs[0].task}, seed {seeds}"
        self._update(description=printable(named), jobs=numbers)

    def _scored(self, job: JobInfo, inputs: int) -> None:
        """Advance the bar by the inputs that were scored."""
        self.inputs += inputs
        self.inputs_of[job] += inputs
        speed = self.inputs / (time.perf_counter() - self.started)
        self._update(advance=inputs, speed=f"{speed:,.0f} inputs/s")

    def _row(self, job: JobInfo, row: Result) -> None:
        """Remember the row, for the line of its job."""
        if row.setting.part == "test" and (row.setting.calibration or NONE) == job.calibration:
            if row.setting.iteration == 1:
                self.first[job] = row.accuracy
            self.last[job] = row

    def _finish(self, jobs: Sequence[JobInfo]) -> None:
        """Print a line for each finished job, with the common speed."""
        seconds = time.perf_counter() - min(self.began[job] for job in jobs)
        speed = sum(self.inputs_of[job] for job in jobs) / seconds
        self.running -= len(jobs)
        for job in jobs:
            self.done += 1
            if not self.quiet and job in self.last:
                line = f"{self._line(job, self.last[job])} ({speed:,.0f} inputs/s, job {self.done} of {self.jobs})"
                if self.bar is not None and not self.bar.disable:
                    self.bar.console.print(printable(line), markup=False)
                else:
                    note(line)

    def _update(self, **values: Any) -> None:
        if self.bar is not None:
            self.bar.update(self.shown, **values)

    def _line(self, job: JobInfo, row: Result) -> str:
        first = f"T = 1: {self.first[job]:.1%}, " if job in self.first and row.setting.iteration > 1 else ""
        gate = f", {brief(row.setting.gate)}" if job.gates > 1 else ""
        skipped = f", {sum(row.skipped.values())} skipped" if row.skipped else ""
        return f"{job.label}: {first}T = {row.setting.iteration}: {row.accuracy:.1%} of {row.n}{gate}{skipped}"
