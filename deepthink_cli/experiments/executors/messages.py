"""What the process that drives a run and its workers say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepthink_cli.errors import Naming, Problem, current_naming
from deepthink_cli.experiments.results import Result
from deepthink_cli.experiments.units import Unit
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction


@dataclass(frozen=True)
class Open:
    """Load a model, in place of the one that is loaded; `naming` is how messages write options."""

    model: ModelOptions
    naming: Naming = field(default_factory=current_naming)


@dataclass(frozen=True)
class Do:
    """Make the missing rows of a unit of the loaded model; with `samples`, return the predictions as well."""

    unit: Unit
    samples: bool = False


@dataclass(frozen=True)
class Opened:
    """A loaded model: its identity, the most tokens that it reads in one pass, and what to tell of its engine.

    `package` names the version of this package on the worker, `host` its machine.
    """

    identity: ModelIdentity
    most: int
    device: str
    description: str
    warning: str | None
    package: str
    host: str


@dataclass(frozen=True, eq=False)
class JobInfo:
    """What is shown of a job: `label` names it, `calibration` is the first of the run; `gates` counts them.

    `fewer` says which demonstrations do not fit, if they were chosen where the job is done.
    """

    label: str
    task: str
    seed: int
    model: str
    gates: int
    calibration: str
    fewer: str | None = None


@dataclass(frozen=True)
class Began:
    """Jobs with missing rows begin together; the events that follow give their numbers."""

    jobs: Sequence[JobInfo]


@dataclass(frozen=True)
class Scored:
    """Inputs of a job were scored."""

    job: int
    inputs: int


@dataclass(frozen=True)
class Made:
    """A row of a job is complete."""

    job: int
    row: Result
    predictions: Sequence[Prediction] = ()


@dataclass(frozen=True)
class Ended:
    """The jobs that began together are done."""


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


JobEvent = Began | Scored | Made | Ended
Message = Open | Do
Event = JobEvent | Opened | Finished | Failed | Died
