"""Progress of a run: jobs done, inputs per second, time left, and a line for every job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.cli.console import note, progress
from deepthink_cli.io.text import printable
from deepthink_cli.updates.texts import brief
from deepthink_cli.workflows.events import RunObserver

if TYPE_CHECKING:
    from deepthink_cli.runs.jobs import RunJob
    from deepthink_cli.runs.plan import RunPlan
    from deepthink_cli.runs.results import Result
    from deepthink_cli.runs.runner import Work


class RunProgress(RunObserver):
    """A progress bar over all inputs of a run, on stderr; without a terminal, only the lines of the jobs."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.done, self.inputs = 0, 0
        self.inputs_of: Counter[RunJob] = Counter()
        self.first: dict[RunJob, float] = {}
        self.last: dict[RunJob, Result] = {}

    def begin(self, plan: RunPlan, work: Work) -> None:
        """Start the bar, with the jobs and their missing rows."""
        self.jobs, self.gates = sum(bool(wanted) for _, wanted in work), len(plan.gates)
        self.bar = progress(self.quiet, "jobs", "speed", left=True)
        self.live = not self.bar.disable
        total = sum(job.scorings(plan, wanted) for job, wanted in work)
        self.shown = plan.calibrations[0]
        self.task = self.bar.add_task("starting", total=total, jobs=f"job 1 of {self.jobs}", speed="")
        self.started = time.perf_counter()
        self.bar.start()

    def end(self) -> None:
        """Stop the bar."""
        self.bar.stop()

    def start(self, jobs: Sequence[RunJob]) -> None:
        """Show the jobs that start."""
        self.began = time.perf_counter()
        numbers = f"job {self.done + 1} of {self.jobs}"
        if len(jobs) > 1:
            numbers = f"jobs {self.done + 1}-{self.done + len(jobs)} of {self.jobs}"
        seeds = ", ".join(dict.fromkeys(str(job.seed) for job in jobs))
        named = jobs[0].label if len(jobs) == 1 else f"{jobs[0].task.name}, seed {seeds}"
        self.bar.update(self.task, description=printable(named), jobs=numbers)

    def scored(self, job: RunJob, inputs: int) -> None:
        """Advance the bar by the inputs that were scored."""
        self.inputs += inputs
        self.inputs_of[job] += inputs
        speed = self.inputs / (time.perf_counter() - self.started)
        self.bar.update(self.task, advance=inputs, speed=f"{speed:,.0f} inputs/s")

    def row(self, job: RunJob, row: Result) -> None:
        """Remember the row, for the line of its job."""
        if row.setting.part == "test" and (row.setting.calibration or NONE) == self.shown:
            if row.setting.iteration == 1:
                self.first[job] = row.accuracy
            self.last[job] = row

    def finish(self, jobs: Sequence[RunJob]) -> None:
        """Print a line for each finished job, with the common speed."""
        speed = sum(self.inputs_of[job] for job in jobs) / (time.perf_counter() - self.began)
        for job in jobs:
            self.done += 1
            if not self.quiet and job in self.last:
                line = f"{self._line(job, self.last[job])} ({speed:,.0f} inputs/s, job {self.done} of {self.jobs})"
                if self.live:
                    self.bar.console.print(printable(line), markup=False)
                else:
                    note(line)

    def _line(self, job: RunJob, row: Result) -> str:
        first = f"T = 1: {self.first[job]:.1%}, " if job in self.first and row.setting.iteration > 1 else ""
        gate = f", {brief(row.setting.gate)}" if self.gates > 1 else ""
        skipped = f", {sum(row.skipped.values())} skipped" if row.skipped else ""
        return f"{job.label}: {first}T = {row.setting.iteration}: {row.accuracy:.1%} of {row.n}{gate}{skipped}"
