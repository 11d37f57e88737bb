"""Log the rows of a run to an experiment tracker: trackio or wandb, whose init, log and finish are called alike."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Event, Note, Tell, Warn
from deepthink_cli.experiments.executors.base import JobsPlanned, RowMade, RunEnded, RunsPrepared
from deepthink_cli.io.hub import check_installed
from deepthink_cli.observers import Observer
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.updates import brief

if TYPE_CHECKING:
    from deepthink_cli.experiments.jobs import Run
    from deepthink_cli.experiments.results import Result

SERVICES = ("trackio", "wandb")


class LogOptions(Options):
    """The tracker; no variable of the environment, as nothing is sent unless the command or its config file says so."""

    log: Annotated[
        str | None,
        Flag(
            OUTPUT,
            "Also log every row to a tracker: trackio:PROJECT or wandb:PROJECT. Default: nothing is logged.",
            "SERVICE:PROJECT",
            variable=False,
        ),
    ] = None


def check(options: LogOptions, *_: object) -> None:
    """Raise InputError for another form than SERVICE:PROJECT, and for a tracker that is unknown or not installed."""
    service, project = str(options.log).partition(":")[::2]
    if service not in SERVICES or not project.strip():
        raise InputError.of(
            "log", options.log, f"not SERVICE:PROJECT; give one of {', '.join(f'{name}:PROJECT' for name in SERVICES)}"
        )
    check_installed(Problem.of("log", options.log), service, service)


class Tracker:
    """Logs every written row at once: its accuracy and macro F1 over T, under the name of its task.

    Nothing but figures and the settings of the run is logged: no texts, no samples, no details of the machine. The
    first failure of the tracker is a warning and ends the logging; the run and its rows do not depend on it.
    """

    def __init__(self, options: LogOptions, _: str, tell: Tell) -> None:
        self.name, self.tell = str(options.log), tell
        self.service, _, self.project = self.name.partition(":")
        self._prepared: RunsPrepared | None = None  # None once the tracker has failed
        self._module: ModuleType | None = None

    def __call__(self, event: Event) -> None:
        """Log what an event tells."""
        match event:
            case RunsPrepared():
                self._prepared = event
            case JobsPlanned(jobs, _) if jobs and self._module is None and self._prepared is not None:
                with self._guarded(self._prepared.out):
                    self._start(self._prepared)
            case RowMade(_, row) if self._module is not None and self._prepared is not None:
                with self._guarded(self._prepared.out):
                    self._log(self._module, row)
            case RunEnded() if self._module is not None and self._prepared is not None:
                with self._guarded(self._prepared.out):
                    self._module.finish()
                self._module = None

    def _start(self, prepared: RunsPrepared) -> None:
        """Start a run of the tracker, with the settings of ours."""
        self._module = module = import_module(self.service)
        configs = list(map(_config, prepared.runs))
        settings: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        if self.service == "wandb":
            private = {"disable_git": True, "disable_code": True, "save_code": False, "x_save_requirements": False}
            machine = {"x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True}
            settings = {"settings": module.Settings(console="off", silent=True, **private, **machine)}
        config = configs[0] if len(configs) == 1 else {"runs": configs}
        module.init(project=self.project, name=prepared.out.name, config=config, **settings)
        if self.service == "wandb":
            module.define_metric("*", step_metric="iteration")
        self.tell(Note(f"{option('log')} {self.name}: every row is also logged there"))

    def _log(self, module: ModuleType, row: Result) -> None:
        if self.service == "trackio":
            module.log(_metrics(row), step=row.setting.iteration)
        else:  # its own steps must increase, and jobs that are read together write T = 1 of each, then T = 2 of each
            module.log({**_metrics(row), "iteration": row.setting.iteration})

    @contextmanager
    def _guarded(self, out: Path) -> Iterator[None]:
        """Warn of a failure of the tracker, and log no more; its output is dropped, because stdout is for data."""
        try:
            with redirect_stdout(io.StringIO()):
                yield
        except Exception as error:
            self._module = self._prepared = None
            reason = " ".join(str(error).split()) or type(error).__name__
            ending = f"logging ends, the rows of {out} are complete without it"
            self.tell(Warn(f"{option('log')} {self.name}: {reason}; {ending}"))


def _config(run: Run) -> dict[str, Any]:
    """The settings of one run, as JSON values."""
    model = run.spec.identify()
    return {
        "model": model.id,
        "model_sha256": model.contents_sha256,
        "dtype": model.dtype,
        "tasks": [task.name for task in run.tasks],
        "seeds": list(run.options.seeds),
        "gate": [brief(gate) for gate in run.options.rules],
        "iterations": run.options.iterations,
        "positions": run.options.positions[0],
        "protocol": run.options.protocols[0],
        "limit": run.options.limit,
        "shots": run.options.shots[0],
        "methods": list(run.options.techniques),
        "calibrations": list(run.options.calibrations),
        "scoring": str(run.options.scoring),
    }


def _metrics(row: Result) -> dict[str, float]:
    """The figures of a row, named by its task and its settings."""
    setting = row.setting
    described = [
        PurePath(setting.model).name,
        setting.dtype,
        setting.protocol,
        setting.positions,
        f"{setting.shots} shots",
        brief(setting.gate),
        f"seed {setting.seed}",
        "" if setting.order_seed is None else f"order {setting.order_seed}",
        "" if setting.pool_size is None else setting.sampling,
        setting.technique,
        setting.scoring,
        setting.calibration,
        "dev" if setting.part == "dev" else "",
    ]
    figures = {"accuracy": row.accuracy, "macro_f1": row.macro_f1}
    ending = f" ({', '.join(filter(None, described))})"
    return {f"{setting.task}/{name}{ending}": value for name, value in figures.items() if value is not None}


TRACKERS = Observer(
    ("run",),
    LogOptions,
    check,
    Tracker,
    "--log of run: a tracker that is told of every row",
    "https://github.com/gradio-app/trackio, https://github.com/wandb/wandb",
)
