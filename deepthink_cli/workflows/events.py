"""What workflows tell while they run: a caller may show it, log it or ignore it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepthink_cli.runs.plan import RunJob, RunPlan
    from deepthink_cli.runs.results import Result
    from deepthink_cli.runs.runner import Work


@dataclass(frozen=True)
class Detail:
    """Something for users who asked to know more."""

    text: str


@dataclass(frozen=True)
class Note:
    """Something for users, unless they asked for silence."""

    text: str


@dataclass(frozen=True)
class Warn:
    """Something that users must know in any case."""

    text: str


@dataclass(frozen=True)
class Progress:
    """`done` of `total` (None if that is not known) of what is being done; `fields` say more, each by its name."""

    what: str
    done: int
    total: int | None
    fields: Mapping[str, str] = field(default_factory=dict)


Event = Detail | Note | Warn | Progress
Tell = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore an event."""


class RunObserver:
    """What happens in a run; each method does nothing, a caller overrides those that it wants to show."""

    def begin(self, plan: RunPlan, work: Work) -> None:
        """The jobs with their missing rows are known."""

    def start(self, jobs: Sequence[RunJob]) -> None:
        """Jobs of one task begin, in step."""

    def scored(self, job: RunJob, inputs: int) -> None:
        """Inputs of a job were scored."""

    def row(self, job: RunJob, row: Result) -> None:
        """A row of a job was written."""

    def finish(self, jobs: Sequence[RunJob]) -> None:
        """Jobs are done."""

    def end(self) -> None:
        """The run is done, or was stopped by an error or an interrupt."""
