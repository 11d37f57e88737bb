"""What the process that drives workers and the workers say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from deepthink_cli.errors import Naming, Problem, current_naming
from deepthink_cli.experiments.progress import InputsScored, JobInfo, JobsDone, JobsStarted
from deepthink_cli.experiments.results import Result
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from deepthink_cli.scoring.pipeline import Part
    from deepthink_cli.scoring.prediction import Prediction


class Subject(Protocol):
    """What a worker opens before it does units of it: hashable, and equal in all processes."""

    @property
    def name(self) -> str:
        """Its name in messages."""


class Unit(Protocol):
    """What a worker does at a time; `digest` tells units apart, and `label` names them in messages."""

    @property
    def subject(self) -> Subject:
        """What has to be open."""

    @property
    def digest(self) -> str:
        """The same in all processes."""

    @property
    def label(self) -> str:
        """Its name in messages."""


@dataclass(frozen=True)
class Open:
    """Open a subject, in place of the one that is open; `naming` is how messages write options."""

    subject: Subject
    naming: Naming = field(default_factory=current_naming)


@dataclass(frozen=True)
class Do:
    """Do a unit of the open subject; with `samples`, return the predictions of its rows as well."""

    unit: Unit
    samples: bool = False


@dataclass(frozen=True)
class Opened:
    """A loaded model: its identity, the most tokens that it reads in one pass, and what its engine says of itself.

    `package` names the version of this package on the worker, `host` its machine.
    """

    identity: ModelIdentity
    most: int
    device: str
    description: str
    notice: str | None
    warning: str | None
    package: str
    host: str


@dataclass(frozen=True)
class RowMade:
    """A row of a job is complete.

    `predictions` are those before the correction of its scores, each with its correction if there is one; they are
    given only if samples are asked for.
    """

    job: JobInfo
    row: Result
    predictions: Sequence[Prediction] = ()


@dataclass(frozen=True)
class RowsLabelled:
    """The predictions of a chunk of rows, or the error that one of them raised; see `Failed` for its fields."""

    part: Part
    problems: tuple[Problem, ...] = ()
    is_input: bool = False


@dataclass(frozen=True)
class Finished:
    """A unit is done."""


@dataclass(frozen=True)
class Failed:
    """An error stopped what the worker was asked to do; `is_input` if every worker would meet it."""

    problems: tuple[Problem, ...]
    is_input: bool


@dataclass(frozen=True)
class Died:
    """The worker ended, with the reason as far as it is known."""

    reason: str


JobEvent = JobsStarted | InputsScored | RowMade | JobsDone
Done = JobEvent | RowsLabelled
Message = Open | Do
Event = Done | Opened | Finished | Failed | Died
