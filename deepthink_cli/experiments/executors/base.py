"""The interface of executors: what a run tells of its progress, what is said to workers, and the places of work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deepthink_cli.errors import Naming, Problem, current_naming
from deepthink_cli.events import Event as Told
from deepthink_cli.events import Note, Tell
from deepthink_cli.experiments.results import Result
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.registry import Registry

if TYPE_CHECKING:
    from deepthink_cli.experiments.jobs import Run
    from deepthink_cli.scoring.pipeline import Part
    from deepthink_cli.scoring.prediction import Prediction


@dataclass(frozen=True)
class RunsPrepared(Told):
    """Runs into the folder `out` are about to begin; told first."""

    runs: Sequence[Run]
    out: Path


@dataclass(frozen=True)
class JobsPlanned(Told):
    """Jobs have missing rows, for which inputs are scored; told again for those of every further model."""

    jobs: int
    inputs: int


@dataclass(frozen=True)
class InputsScored(Told):
    """Inputs of a job were scored."""

    inputs: int


@dataclass(frozen=True)
class RowMade(Told):
    """A row of the job with this `label` is complete; it is told once it is written.

    `predictions` are those before the correction of its scores, each with its correction if there is one; they are
    given only if samples are asked for.
    """

    label: str
    row: Result
    predictions: Sequence[Prediction] = ()


@dataclass(frozen=True)
class JobsDone(Told):
    """Jobs of one task that were read together are done: the test rows that were made of each, by its label."""

    rows: Mapping[str, Sequence[Result]]


@dataclass(frozen=True)
class RunEnded(Told):
    """The run is done, or was stopped by an error or an interrupt."""


class Subject(Protocol):
    """What a worker opens before it does units of it: hashable, and equal in all processes."""

    @property
    def name(self) -> str:
        """Its name in messages."""


@dataclass(frozen=True)
class Unit:
    """What a worker does at a time, with its subject open; `tries` counts the workers that ended while doing it.

    `label` names it in messages.
    """

    subject: Subject
    label: str
    tries: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Open:
    """Open a subject, in place of the one that is open; `naming` is how messages write options."""

    subject: Subject
    naming: Naming = field(default_factory=current_naming)


@dataclass(frozen=True)
class Opened:
    """A loaded model: its identity, the most tokens that it reads in one pass, and the `events` that describe it.

    `package` names the version of this package on the worker, `host` its machine.
    """

    identity: ModelIdentity
    most: int
    events: list[Told]
    package: str
    host: str


@dataclass(frozen=True)
class RowsLabelled:
    """The predictions of a chunk of rows, or the error that one of them raised: an InputError, or another."""

    part: Part
    problems: tuple[Problem, ...] = ()
    is_input: bool = False


@dataclass(frozen=True)
class Finished:
    """A unit is done."""


@dataclass(frozen=True)
class Failed:
    """An error that every worker would meet stopped what the worker was asked to do."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Died:
    """The worker ended, or failed as another may not, with the reason as far as it is known."""

    reason: str


JobEvent = Note | InputsScored | RowMade | JobsDone
Done = JobEvent | RowsLabelled
Message = Open | Unit
Event = Done | Opened | Finished | Failed | Died


PACKAGE = Path(__file__).resolve().parent.parent.parent


def module_path(variables: Mapping[str, str]) -> str:
    """PYTHONPATH of a worker: the package, and what the user names; an empty name would be the working directory."""
    named = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([str(PACKAGE.parent), *map(os.path.abspath, named)])


Deliver = Callable[[Event], None]  # called from any thread; `Died` is the last event of a worker


class Worker(Protocol):
    """A worker that has been started, and does one message at a time."""

    def send(self, message: Message) -> None:
        """Ask the worker for something; its events are delivered, the last of them `Opened`, `Finished` or `Failed`."""

    def stop(self) -> None:
        """End the worker at once, whatever it is doing."""


class Executor(Protocol):
    """Starts workers, on this machine or others. A new one is one class with these members.

    Whoever makes an executor closes it.
    """

    workers: int

    def start(self, number: int, deliver: Deliver) -> Worker:
        """Start worker `number`, from 0, or its successor if it has died; raises DeepThinkError if that fails."""

    def close(self) -> None:
        """Free what the executor holds, once all workers have been stopped."""


@dataclass(frozen=True)
class Cluster:
    """Machines on which workers are started, asked for by `--workers [N@]NAME[:ADDRESS]`.

    `start`, or where it is found (`module:function`), makes an executor of the address (None: the cluster's own
    default), the number of workers (None: as many as there is room for) and the device of the model's options. It
    raises InputError for an address that cannot be one and what the cluster cannot run, and DeepThinkError if no
    cluster answers.
    """

    start: Callable[[str | None, int | None, str], Executor] | str
    summary: str
    source: str


@dataclass(frozen=True)
class Queue:
    """A queue of jobs, asked for by `--workers N@NAME`; each does one of N shards of a run with a command of its own.

    `submit`, or where it is found, gets the number of shards, the folder of the run, the words of the command line and
    a function to tell notes; it returns the line that is printed. It raises InputError for what the queue cannot take.
    """

    submit: Callable[[int, Path, tuple[str, ...], Tell], str] | str
    summary: str
    source: str


def _check(name: str, found: Any) -> Cluster | Queue:
    if not isinstance(found, Cluster | Queue):
        raise TypeError(f"a {type(found).__name__}, neither a Cluster nor a Queue")
    return found


EXECUTORS: Registry[Cluster | Queue] = Registry("executors", {}, _check)
