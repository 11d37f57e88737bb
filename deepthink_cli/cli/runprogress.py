"""How far a run is: jobs done, inputs per second, time left, and a line for every job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from deepthink_cli.cli.console import note

if TYPE_CHECKING:
    from deepthink_cli.results import Result, Setting
    from deepthink_cli.study import Job, Plan


class RunProgress:
    """A progress bar over all inputs of a run, on stderr; without a terminal, the lines of the jobs alone."""

    def __init__(self, plan: Plan, todo: Sequence[tuple[Job, Sequence[Setting]]], quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        from deepthink_cli.study import scorings

        self.quiet = quiet
        self.jobs, self.done, self.inputs = len(todo), 0, 0
        self.gates = len(plan.etas) * len(plan.momentums)
        self.first: dict[str, float] = {}
        self.last: Result | None = None
        console = Console(stderr=True, highlight=False)
        self.live = not quiet and console.is_terminal
        self.bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
            TextColumn("{task.fields[jobs]}", markup=False), TextColumn("{task.fields[speed]}", markup=False),
            TimeRemainingColumn(), TextColumn("left"),
            console=console, disable=not self.live, transient=True,
        )  # fmt: skip
        total = sum(scorings(plan, job, wanted) for job, wanted in todo)
        self.task = self.bar.add_task("starting", total=total, jobs=f"job 1 of {self.jobs}", speed="")

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def start(self, job: Job) -> None:
        """A job begins."""
        self.began, self.before = time.perf_counter(), self.inputs
        self.first.clear()
        self.bar.update(
            self.task, description=f"{job.task.name}, seed {job.seed}", jobs=f"job {self.done + 1} of {self.jobs}"
        )

    def scored(self, inputs: int) -> None:
        """Inputs were scored."""
        self.inputs += inputs
        speed = self.inputs / (time.perf_counter() - self.started)
        self.bar.update(self.task, advance=inputs, speed=f"{speed:,.0f} inputs/s")

    def row(self, row: Result) -> None:
        """A row was written."""
        if row.setting.part == "test":
            if row.setting.iteration == 1:
                self.first["accuracy"] = row.accuracy
            self.last = row

    def finish(self, job: Job) -> None:
        """A job is done: one line about it."""
        self.done += 1
        row = self.last
        if self.quiet or row is None:
            return
        first = (
            f"T = 1: {self.first['accuracy']:.1%}, " if "accuracy" in self.first and row.setting.iteration > 1 else ""
        )
        gate = f", eta {row.setting.eta:g}, momentum {row.setting.momentum:g}" if self.gates > 1 else ""
        speed = (self.inputs - self.before) / (time.perf_counter() - self.began)
        skipped = f", {sum(row.skipped.values())} skipped" if row.skipped else ""
        line = (
            f"{job.task.name}, seed {job.seed}: {first}T = {row.setting.iteration}: {row.accuracy:.1%} "
            f"of {row.n}{gate}{skipped} ({speed:,.0f} inputs/s, job {self.done} of {self.jobs})"
        )
        if self.live:
            self.bar.console.print(line, markup=False)
        else:
            note(line)
