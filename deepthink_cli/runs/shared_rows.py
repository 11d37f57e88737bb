"""Evaluated rows that several runs share: read once, with the training rows beside them."""

from __future__ import annotations

from typing import Any

from deepthink_cli.runs.plan import RunPlan
from deepthink_cli.tasks.catalogue import digest
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import EvaluationSet, evaluation_set


class SharedRows:
    """The evaluation sets of tasks, each made once for runs with the same protocol, source and limit."""

    def __init__(self) -> None:
        self._sets: dict[Any, EvaluationSet] = {}

    def of(self, plan: RunPlan, task: Task) -> EvaluationSet:
        """The rows that a run evaluates of a task; raises as `evaluation_set`."""
        key = (task.name, digest(task), plan.protocol, plan.source, plan.limit)
        if key not in self._sets:
            self._sets[key] = evaluation_set(task, plan.protocol, plan.source, plan.limit)
        return self._sets[key]

    def clear(self) -> None:
        """Forget the training rows, which take the most memory and are not needed once runs are prepared."""
        for each in self._sets.values():
            each.pools.clear()
