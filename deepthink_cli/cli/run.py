"""`deepthink run`: evaluate tasks at every iteration with several seeds, into a folder that can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.command import command_line
from deepthink_cli.cli.console import Show, duration, note, report, write_json
from deepthink_cli.cli.data_options import ChatArguments, DataDir, TaskNames
from deepthink_cli.cli.executor_options import ExecutorArguments, Machines
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments, tell_of_toy
from deepthink_cli.cli.scoring_options import WITHOUT_PARTS, ScoringOptions
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.errors import Problems
from deepthink_cli.events import Event, Note, Progress, Tell, silent, telling_all
from deepthink_cli.experiments.executors.base import InputsScored, JobsDone, JobsPlanned
from deepthink_cli.experiments.experiment import Experiment, run_tasks
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.observers import Watching, observed
from deepthink_cli.options import DATA, OUTPUT, Flag, Options
from deepthink_cli.scoring.scoring import Scoring
from deepthink_cli.updates import brief

if TYPE_CHECKING:
    from deepthink_cli.experiments.results import Result
    from deepthink_cli.model.spec import ModelSpec

    RunObservers = Options
else:
    RunObservers = observed("run")

Samples = Annotated[bool, Flag(OUTPUT, "Also write every input's scores, as Parquet.", variable=False)]


class RunArguments(Options):
    """The tasks of a run, their data, and its folder."""

    task: TaskNames = None
    demos: Annotated[
        str | None,
        Flag(DATA, "Use the demonstrations of this file; for one task and one seed only.", "FILE", variable=False),
    ] = None
    data_dir: DataDir = None
    output: Annotated[
        Path, Flag(OUTPUT, "Folder of the run; an interrupted run is resumed.", "FOLDER", short="-o", variable=False)
    ] = Path("run")
    samples: Samples = False
    dry_run: Annotated[
        bool,
        Flag(
            OUTPUT,
            "Print what would be done, and an estimate of the time from a short probe if the weights are here.",
            variable=False,
        ),
    ] = False


# Fields of an experiment that are no options of a run.
OF_STUDIES = ("order_seed", "sampling", "tokens", "pool_size", "balance")


@about(
    "run --task classic -m gpt2 -T 15 --seeds 10 -o runs/gpt2",
    first="task output model iterations eta seeds technique calibrate limit dry_run",
)
@grouped
def run(
    context: typer.Context,
    asked: RunArguments,
    *,
    model: Annotated[Given[ModelOptions], Without("engine"), NEW_MODEL],
    options: Annotated[Given[Experiment], Without(*OF_STUDIES)],
    scoring: Annotated[Given[ScoringOptions], WITHOUT_PARTS],
    chat: Annotated[ChatArguments, Without("system")],
    watching: Given[RunObservers],
    divided: ExecutorArguments,
    common: CommonArguments,
) -> None:
    """Think once for every task and seed, and score every T."""
    from deepthink_cli.outputs import check_run_apart
    from deepthink_cli.tasks.sources import source_of

    problems, observers = Problems(), Watching("run", watching.changed)
    problems.tried(check_given, context, "run")
    model_options = problems.tried(model.checked)
    with problems.collected():
        experiment = options.checked()
        _ = experiment.scored  # raises for iterations beyond T
    steps = problems.tried(Scoring.of, **scoring.changed)
    problems.tried(source_of, asked.data_dir, model.offline)
    problems.tried(run_tasks, asked.task or ())
    folder = asked.output
    with problems.collected():
        machines = Machines.checked(divided, asked.demos)
        folder = machines.folder(folder)
    paths: dict[str, Any] = {"model": model.model, "task": asked.task, "data_dir": asked.data_dir}
    reads = problems.tried(read_by, asked.demos, **paths, config=common.config) or []
    problems.tried(observers.check, reads, [asked.output])
    problems.tried(check_run_apart, folder, reads)
    problems.raise_any()
    named: dict[str, Any] = {"models": (model_options,), "tasks": tuple(asked.task or ()), "demos": asked.demos}
    named |= {"data_dir": asked.data_dir and str(asked.data_dir), "chat": chat.chat, "scoring": steps}
    experiment = experiment.model_copy(update=named)
    with Show(common) as tell:
        tell_of_toy(model, tell)
    if asked.dry_run:
        _show_plan(experiment, folder, common)
    else:
        do_runs(experiment.runs, machines, asked.output, asked.samples, observers, common)


def do_runs(
    runs: Sequence[Experiment],
    machines: Machines,
    output: Path,
    samples: bool,
    observers: Watching,
    common: CommonArguments,
    find: Callable[[ModelOptions, Tell], ModelSpec] | None = None,
    begin: Callable[[Path], None] | None = None,
) -> None:
    """Do runs, or give them to a queue; print what was written, and the command that follows.

    `find` opens a model, and `begin` gets the folder of the rows before any of them is made.
    """
    from deepthink_cli.engine.opening import find_model
    from deepthink_cli.experiments.prepare import prepare
    from deepthink_cli.experiments.run import execute
    from deepthink_cli.io.cache import Store

    folder = machines.folder(output)
    with Show(common) as tell, machines.executor(runs[0].models[0].device) as executor:
        jobs = prepare(runs, folder, tell, find or find_model)
        if machines.queued(output, tell):
            return
        if begin is not None:
            begin(folder)
        told = telling_all(tell, RunProgress(silent if common.as_json else tell), observers.start(command_line(), tell))
        summary = execute(jobs, folder, samples, told, Store(), executor, machines.shard)
    if common.as_json:
        write_json(asdict(summary))
    written = f"{summary.written} rows written, {summary.inputs:,} inputs scored in {summary.seconds:.1f} s"
    note(f"{summary.out}: {written}", common.quiet)
    note(f"next: deepthink report {output}", common.quiet)


def _show_plan(experiment: Experiment, folder: Path, common: CommonArguments) -> None:
    from deepthink_cli.experiments.estimate import estimate_runs
    from deepthink_cli.experiments.prepare import described, prepare

    with Show(common) as tell:
        jobs = prepare(experiment.runs, folder, tell)
        estimated = estimate_runs(jobs, folder, tell=tell)
    values = described(experiment, jobs, folder)
    if common.as_json:
        write_json({**values, "estimate": asdict(estimated)})
        return
    there = f"; {estimated.written} rows are there already" if estimated.written else ""
    if estimated.seconds is None:
        took = f"not estimated: {estimated.reason}{there}"
    elif estimated.rows:
        took = f"about {duration(estimated.seconds)}, by a short probe{there}"
    else:
        took = "nothing to do: all rows are there already"
    options = {name: ", ".join(map(str, each)) if isinstance(each, list) else each for name, each in values.items()}
    width = max(map(len, options))
    for name, value in {**options, "tokens": f"about {estimated.tokens:,}", "time": took}.items():
        report(f"{name:{width}}  {value}")
    report("", "Nothing was written: this is a dry run.")


class RunProgress:
    """Tells of the inputs of a run that are scored, and of every job that is done."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.done = self.inputs = self.jobs = self.total = 0
        self.started: float | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case JobsPlanned(jobs, inputs):
                self.started = self.started or time.perf_counter()
                self.jobs += jobs
                self.total += inputs
            case InputsScored(inputs):
                self.inputs += inputs
            case JobsDone(rows):
                for label, of_job in rows.items():
                    self.done += 1
                    self._tell_of(label, of_job)
        if isinstance(event, JobsPlanned | InputsScored) and self.total:
            left = f"{duration((self.total - self.inputs) / self._speed)} left" if self.inputs else ""
            fields = {"jobs": f"{self.done} of {self.jobs} jobs done", "left": left}
            self.tell(Progress("scoring", self.inputs, self.total, fields))

    @property
    def _speed(self) -> float:
        return self.inputs / (time.perf_counter() - (self.started or 0.0))

    def _tell_of(self, label: str, written: Sequence[Result]) -> None:
        """Tell a line of a finished job, with the speed of the run so far."""
        if not written:
            return
        rows = [row for row in written if row.setting.calibration == written[0].setting.calibration]
        row, setting = rows[-1], rows[-1].setting
        before = [each for each in rows if each.setting.iteration == 1 < setting.iteration]
        first = f"T = 1: {before[-1].accuracy:.1%}, " if before else ""
        gate = f", {brief(setting.gate)}" if len({each.setting.gate for each in rows}) > 1 else ""
        more = f", {setting.calibration}" if setting.calibration else ""
        more += f", {sum(row.skipped.values())} skipped" if row.skipped else ""
        found = f"{first}T = {setting.iteration}: {row.accuracy:.1%} of {row.n}{gate}{more}"
        self.tell(Note(f"{label}: {found} ({self._speed:,.0f} inputs/s, job {self.done} of {self.jobs})"))
