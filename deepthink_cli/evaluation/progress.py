"""The events of an evaluation, beside notes and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.events import Event

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.evaluation.evaluate import EvaluationReport
    from deepthink_cli.scoring.prediction import Prediction


@dataclass(frozen=True)
class EvaluationStarted(Event):
    """The rows will now be scored with this memory, and corrected by these calibrations."""

    memory: OpenedMemory
    calibrate: tuple[str, ...]


@dataclass(frozen=True)
class RowPredicted(Event):
    """A row was scored at one iteration; the events of its iterations come one after another."""

    prediction: Prediction


@dataclass(frozen=True)
class EvaluationEnded(Event):
    """All rows were scored."""

    report: EvaluationReport
