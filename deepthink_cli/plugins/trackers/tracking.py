"""Log the rows of a run to an experiment tracker: trackio or wandb, whose init, log and finish are called alike."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Event, Note, Tell, Warn, silent
from deepthink_cli.experiments.executors.base import JobsPlanned, RowWritten, RunEnded, RunsPrepared
from deepthink_cli.io.hub import check_installed
from deepthink_cli.plugins.trackers.registry import LogOptions
from deepthink_cli.updates import brief

if TYPE_CHECKING:
    from deepthink_cli.experiments.jobs import Run
    from deepthink_cli.experiments.results import Result

SERVICES = ("trackio", "wandb")


@dataclass(frozen=True)
class Tracking:
    """A project of a tracker, as in `--log trackio:PROJECT`."""

    service: str
    project: str

    @classmethod
    def checked(cls, text: str) -> Tracking:
        """Parse SERVICE:PROJECT; raises InputError for another form and for a tracker that is not installed."""
        service, _, project = text.partition(":")
        if service not in SERVICES or not project.strip():
            raise InputError.of(
                "log", text, f"not SERVICE:PROJECT; give one of {', '.join(f'{name}:PROJECT' for name in SERVICES)}"
            )
        check_installed(Problem.of("log", text), service, service)
        return cls(service, project)

    def __str__(self) -> str:
        return f"{self.service}:{self.project}"


@dataclass
class Tracker:
    """Logs every written row at once: its accuracy and macro F1 over T, under the name of its task.

    Nothing but figures and the settings of the run is logged: no texts, no samples, no details of the machine. The
    first failure of the tracker is a warning and ends the logging; the run and its rows do not depend on it.
    """

    tracking: Tracking
    out: Path
    config: Mapping[str, Any]
    tell: Tell = silent
    _module: ModuleType | None = field(default=None, init=False)
    _failed: bool = field(default=False, init=False)

    def __call__(self, event: Event) -> None:
        match event:
            case JobsPlanned(jobs, _) if jobs and self._module is None and not self._failed:
                self._start()
            case RowWritten(_, row):
                self._log(row)
            case RunEnded():
                self._finish()

    def _start(self) -> None:
        """Start a run of the tracker, with the settings of ours."""
        with self._guarded():
            self._module = import_module(self.tracking.service)
            _START[self.tracking.service](self._module, self.tracking, self.out.name, dict(self.config))
        if self._module is not None:
            self.tell(Note(f"{option('log')} {self.tracking}: every row is also logged there"))

    def _log(self, row: Result) -> None:
        if self._module is not None:
            with self._guarded():
                _LOG[self.tracking.service](self._module, _metrics(row), row.setting.iteration)

    def _finish(self) -> None:
        if self._module is not None:
            with self._guarded():
                self._module.finish()
            self._module = None

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Warn of a failure of the tracker, and log no more; its output is dropped, because stdout is for data."""
        try:
            with redirect_stdout(io.StringIO()):
                yield
        except Exception as error:
            self._module, self._failed = None, True
            reason = " ".join(str(error).split()) or type(error).__name__
            text = (
                f"{option('log')} {self.tracking}: {reason}; logging ends, the rows of {self.out} are complete "
                "without it"
            )
            self.tell(Warn(text))


def _start_trackio(module: ModuleType, tracking: Tracking, name: str, config: dict[str, Any]) -> None:
    module.init(project=tracking.project, name=name, config=config, embed=False, auto_log_gpu=False, auto_log_cpu=False)


def _log_trackio(module: ModuleType, values: dict[str, float], iteration: int) -> None:
    module.log(values, step=iteration)


def _start_wandb(module: ModuleType, tracking: Tracking, name: str, config: dict[str, Any]) -> None:
    private = {"disable_git": True, "disable_code": True, "save_code": False, "x_save_requirements": False}
    machine = {"x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True}
    settings = module.Settings(console="off", silent=True, **private, **machine)
    module.init(project=tracking.project, name=name, config=config, settings=settings)
    module.define_metric("*", step_metric="iteration")


def _log_wandb(module: ModuleType, values: dict[str, float], iteration: int) -> None:
    # Its own steps must increase, and jobs that are read together write T = 1 of each, then T = 2 of each.
    module.log({**values, "iteration": iteration})


_START = {"trackio": _start_trackio, "wandb": _start_wandb}
_LOG = {"trackio": _log_trackio, "wandb": _log_wandb}


def check(options: LogOptions, *_: object) -> None:
    """Raise InputError for a tracker that is unknown or not installed."""
    Tracking.checked(str(options.log))


def start(options: LogOptions, _: str, tell: Tell) -> Tell:
    """Logs the rows of runs from their preparation on."""
    tracking, trackers = Tracking.checked(str(options.log)), list[Tracker]()

    def observe(event: Event) -> None:
        if isinstance(event, RunsPrepared):
            configs = list(map(_config, event.runs))
            trackers.append(Tracker(tracking, event.out, configs[0] if len(configs) == 1 else {"runs": configs}, tell))
        for tracker in trackers:
            tracker(event)

    return observe


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
