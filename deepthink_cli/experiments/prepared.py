"""A run that has been checked, and the summary of one that is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.events import Note, Tell
from deepthink_cli.experiments.jobs import PendingJobs, RunJob
from deepthink_cli.experiments.plan import RunPlan, settings
from deepthink_cli.experiments.request import RunRequest
from deepthink_cli.experiments.results import Setting
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.prediction.rows import scored_by
from deepthink_cli.techniques.registry import DEEP_THINKING
from deepthink_cli.updates.gate import grid_text, grid_values
from deepthink_cli.updates.registry import GATE, rule_text


@dataclass(frozen=True)
class PreparedRun:
    """A run that has passed every check that does not need the weights.

    The demonstrations of its `jobs` are known; a method chooses those of `pending` jobs once the model is loaded.
    Workers plan the run again from its `request`.
    """

    plan: RunPlan
    jobs: Sequence[RunJob]
    pending: Sequence[PendingJobs]
    spec: ModelSpec
    out: Path
    request: RunRequest | None = None

    def settings(self) -> list[tuple[RunJob, list[Setting]]]:
        """Every job whose demonstrations are known, with the settings of its rows."""
        identity = self.spec.identify()
        return [(job, settings(self.plan, job, identity)) for job in self.jobs]

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        work, plan = self.settings(), self.plan
        inputs = sum(job.scorings(plan, wanted) for job, wanted in work)
        return {
            "model": self.spec.id,
            "out": str(self.out),
            "tasks": [task.name for task in self.plan.tasks],
            "seeds": list(self.plan.options.every_seed),
            **grid_values(self.plan.options.rules),
            "iterations": self.plan.options.iterations,
            "scored_iterations": list(self.plan.options.scored),
            **self._crossed(),
            **scored_by(plan.options.score),
            "jobs": len(self.jobs) + len(self.pending) * len(plan.options.methods),
            "rows": sum(len(wanted) for _, wanted in work) + sum(each.rows(plan) for each in self.pending),
            "inputs_to_score": inputs + sum(each.scorings(plan) for each in self.pending),
        }

    def _crossed(self) -> dict[str, list[str]]:
        """What the run crosses T and eta with, where it names any."""
        plan = self.plan
        crossed = {
            "demos_by": list(plan.options.demos_by),
            "methods": list(plan.options.methods),
            "calibrations": list(plan.options.calibrations),
            "updates": list(dict.fromkeys(rule_text(rule) or GATE for rule in plan.options.rules)),
        }
        plain = {"demos_by": [], "methods": [DEEP_THINKING], "calibrations": [NONE], "updates": [GATE]}
        return {name: values for name, values in crossed.items() if values != plain[name]}

    @property
    def gates(self) -> str:
        """The grid of gates as text."""
        return grid_text(self.plan.options.rules)


@dataclass(frozen=True)
class RunSummary:
    """The number of rows of the run, the rows written by this call, and the inputs scored for them."""

    out: str
    rows: int
    written: int
    inputs: int
    seconds: float


def tell_of_fewer(jobs: Sequence[RunJob], spec: ModelSpec, tell: Tell) -> None:
    """Report demonstrations that are left out because they do not fit the model, once for all techniques."""
    for text in dict.fromkeys(job.fewer(spec.id) for job in jobs):
        if text is not None:
            tell(Note(text))
