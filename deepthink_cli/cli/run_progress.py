"""Progress of a run: jobs done, inputs per second, time left, and a line for every job."""

from __future__ import annotations

import time
from collections import defaultdict
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
        self.done = self.inputs = self.jobs = self.total = 0
        self.bar: Progress | None = None
        self.shown: Any = None
        self.rows: dict[JobInfo, list[Result]] = defaultdict(list)  # the test rows with the first calibration

    def __call__(self, event: Event) -> None:
        match event:
            case JobsPlanned(jobs, inputs):
                self._begin(jobs, inputs)
            case JobsStarted(jobs):
                self._update(description=printable(jobs[0].label), jobs=f"{self.done} of {self.jobs} jobs done")
            case InputsScored(_, inputs):
                self.inputs += inputs
                self._update(advance=inputs, speed=f"{self._speed:,.0f} inputs/s")
            case RowWritten(job, row) if (row.setting.part, row.setting.calibration or NONE) == (
                "test",
                job.calibration,
            ):
                self.rows[job].append(row)
            case JobsDone(jobs):
                for job in jobs:
                    self.done += 1
                    self._tell(job)
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
        self.shown = self.bar.add_task("starting", total=self.total, jobs=f"0 of {self.jobs} jobs done", speed="")
        self.started = time.perf_counter()
        self.bar.start()

    @property
    def _speed(self) -> float:
        return self.inputs / (time.perf_counter() - self.started)

    def _update(self, **values: Any) -> None:
        if self.bar is not None:
            self.bar.update(self.shown, **values)

    def _tell(self, job: JobInfo) -> None:
        """Print a line for a finished job, with the speed of the run so far."""
        rows = self.rows.pop(job, None)
        if self.quiet or not rows:
            return
        row, setting = rows[-1], rows[-1].setting
        before = [each for each in rows if each.setting.iteration == 1 < setting.iteration]
        first = f"T = 1: {before[-1].accuracy:.1%}, " if before else ""
        gate = f", {brief(setting.gate)}" if job.gates > 1 else ""
        skipped = f", {sum(row.skipped.values())} skipped" if row.skipped else ""
        found = f"{first}T = {setting.iteration}: {row.accuracy:.1%} of {row.n}{gate}{skipped}"
        line = f"{job.label}: {found} ({self._speed:,.0f} inputs/s, job {self.done} of {self.jobs})"
        if self.bar is not None and not self.bar.disable:
            self.bar.console.print(printable(line), markup=False)
        else:
            note(line)
