"""What a run does, computed from its tasks' definitions alone: rows, inputs, tokens and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, fields

from deepthink_cli.experiments.plan import RunPlan, cells, scorings
from deepthink_cli.experiments.request import RunRequest
from deepthink_cli.tasks.files import example_query
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import evaluation_set, protocol_name
from deepthink_cli.techniques.base import Trained

CHARACTERS = 4  # of English text in a token, about
_TRAINING = 3  # passes forward that a gradient step costs


@dataclass(frozen=True)
class Amount:
    """The rows and scored inputs of runs, and the tokens that the model reads for them.

    `longest` is the number of tokens of the longest demonstrations.
    """

    rows: int = 0
    inputs: int = 0
    tokens: float = 0.0
    longest: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return Amount(**{**sums, "longest": max(self.longest, other.longest)})


def amount_of(request: RunRequest) -> Amount:
    """What a run does; raises InputError for a task whose rows must be read to be counted, and cannot."""
    plan = request.plan()
    return sum((_of_task(plan, task) for task in plan.tasks), Amount())


def rows_of(plan: RunPlan) -> int:
    """The number of rows of a run."""
    jobs = len(plan.tasks) * len(plan.options.every_seed) * max(1, len(plan.options.demos_by))
    return jobs * sum(len(cells(plan, technique)) for technique in plan.options.techniques)


def _of_task(plan: RunPlan, task: Task) -> Amount:
    demonstration, scored = _lengths(task)
    jobs = len(plan.options.every_seed) * max(1, len(plan.options.demos_by))
    length = (plan.options.shots or task.shots) * demonstration
    count, total = _rows(plan, task), Amount()
    for technique in plan.options.techniques:
        wanted = cells(plan, technique)
        inputs = scorings(plan, count, technique.members, wanted)
        readings = 1 + (plan.options.scored[-1] - 1) * len(plan.options.rules)
        passes = readings * technique.members
        if isinstance(technique, Trained):
            passes = 1 + _TRAINING * technique.steps
        total += Amount(jobs * len(wanted), jobs * inputs, jobs * (passes * length + inputs * scored), length)
    return total


def _rows(plan: RunPlan, task: Task) -> int:
    protocol = task.protocols[protocol_name(task, plan.protocol)]
    known = protocol.sample or protocol.rows
    if known is None:
        return len(evaluation_set(task, plan.protocol, plan.source, plan.options.limit))
    return min(known, plan.options.limit or known)


def _lengths(task: Task) -> tuple[float, float]:
    """The tokens of one demonstration and of one scored input with all candidates, by the task's example."""
    query = example_query(task, task.name)
    text = task.prompt.query(query.text)
    demonstration = task.prompt.demonstrations([(query.text, query.gold or query.candidates[0])])
    candidates = sum(map(len, query.candidates))
    return len(demonstration) / CHARACTERS, (len(text) + candidates) / CHARACTERS
