"""What a run tells of its progress, beside notes and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.events import Event

if TYPE_CHECKING:  # jobs need torch
    from deepthink_cli.experiments.plan import Run
    from deepthink_cli.experiments.results import Result


@dataclass(frozen=True)
class JobInfo:
    """What is shown of a job: `label` names it, `calibration` is the first of the run; `gates` counts them.

    `key` is that of the first row to be made, which no other job has. `fewer` says which demonstrations do not fit, if
    they were chosen where the job is done.
    """

    key: str
    label: str
    gates: int
    calibration: str
    fewer: str | None = None


@dataclass(frozen=True)
class RunsPrepared(Event):
    """Runs into the folder `out` are about to begin; told first."""

    runs: Sequence[Run]
    out: Path


@dataclass(frozen=True)
class JobsPlanned(Event):
    """Jobs have missing rows, for which inputs are scored; told again for those of every further model."""

    jobs: int
    inputs: int


@dataclass(frozen=True)
class JobsStarted(Event):
    """Jobs of one task start together, and are done together; with several workers, others may start meanwhile."""

    jobs: Sequence[JobInfo]


@dataclass(frozen=True)
class InputsScored(Event):
    """Inputs of a job were scored."""

    job: JobInfo
    inputs: int


@dataclass(frozen=True)
class RowWritten(Event):
    """A row of a job was written."""

    job: JobInfo
    row: Result


@dataclass(frozen=True)
class JobsDone(Event):
    """Jobs that started together are done."""

    jobs: Sequence[JobInfo]


@dataclass(frozen=True)
class RunEnded(Event):
    """The run is done, or was stopped by an error or an interrupt."""
