"""The combinations of a study without those that it excludes, and the run of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError, Problems
from deepthink_cli.experiments.options import RunOptions, SweepOptions
from deepthink_cli.experiments.request import RunRequest
from deepthink_cli.experiments.study.axes import (
    Box,
    Tasks,
    count,
    listed,
    matching,
    meet,
    overlaps,
    shown,
    split,
    without,
)
from deepthink_cli.experiments.study.files import OpenedStudy
from deepthink_cli.experiments.study.format import AXES, IN_ONE_RUN, Study
from deepthink_cli.experiments.study.resolved import resolved_axes
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.splits import protocol_name

_BETWEEN_RUNS = tuple(axis for axis in AXES if axis not in IN_ONE_RUN)  # one run has a single value of each


@dataclass(frozen=True)
class Crossing:
    """The runs of a study, those of a model together: each crosses the values of its box."""

    opened: OpenedStudy
    runs: Sequence[Box]
    tasks: Tasks

    @property
    def combinations(self) -> int:
        """The number of combinations in all runs; a file of several tasks counts once."""
        return sum(map(count, self.runs))


def cross(opened: OpenedStudy) -> Crossing:
    """Cross the axes of a study, before a model is opened.

    Raises InputError, with a line for each mistake, for values that are duplicated, unknown or not on this machine, for
    an exclusion that matches nothing, for combinations whose rows would be the same, and if nothing is left.
    """
    problems = Problems()
    axes, tasks = resolved_axes(opened, problems)
    with problems.collected():
        boxes = _without_excluded(opened, axes, tasks)
    problems.raise_any()
    if not boxes:
        raise InputError(f"{opened.where('exclude')}: exclude: leaves no combination of the axes; exclude fewer")
    models = axes["models"]
    runs = [run for box in boxes for run in split(box, _BETWEEN_RUNS)]
    runs.sort(key=lambda run: models.index(run["models"][0]))
    _check_rows_differ(opened, runs, tasks)
    return Crossing(opened, runs, tasks)


def _without_excluded(opened: OpenedStudy, axes: Box, tasks: Tasks) -> list[Box]:
    boxes, problems = [axes], Problems()
    for number, excluded in enumerate(opened.study.exclude):
        with problems.collected():
            values = _excluded(opened, number, axes, tasks)
            if not all(values.values()):  # a scale or an option has removed them
                continue
            if not any(overlaps(box, values) for box in boxes):
                where = f"{opened.where('exclude', number)}: exclude: {dict(excluded)}"
                raise InputError(f"{where} matches nothing that the exclusions before it leave; omit it")
            boxes = without(boxes, values)
    problems.raise_any()
    return boxes


def _excluded(opened: OpenedStudy, number: int, axes: Box, tasks: Tasks) -> Box:
    """The excluded values of each axis that an exclusion names; none of an axis if another layer replaced them."""
    excluded = opened.study.exclude[number]
    if not excluded:
        raise InputError(f"{opened.where('exclude', number)}: exclude: names no axis; name one, as in {{seeds: 3}}")
    problems, values = Problems(), dict[str, tuple[Any, ...]]()
    for axis, written in excluded.items():
        where = f"{opened.where('exclude', number, axis)}: exclude.{axis}"
        if axis not in AXES:
            problems.add(f"{where}: not an axis; the axes are {', '.join(AXES)}")
            continue
        known, values[axis] = axes[axis], ()
        for value in written if isinstance(written, list) else [written]:
            matched = matching(axis, value, known, tasks)
            if not matched and not opened.is_replaced(axis):
                problems.add(f"{where}: {shown(value)} matches nothing: {axis} is {listed(known)}")
            values[axis] += tuple(matched)
    problems.raise_any()
    return values


def _check_rows_differ(opened: OpenedStudy, runs: Sequence[Box], tasks: Tasks) -> None:
    """Raise InputError if two runs have the same rows of a task, because values of an axis mean the same for it."""
    alike: dict[tuple[Any, ...], list[Box]] = defaultdict(list)
    for run in runs:
        for value in run["tasks"]:
            for task in tasks[value]:
                alike[(task.name, *(_meant(axis, run[axis][0], task) for axis in _BETWEEN_RUNS))].append(run)
    problems = Problems()
    for (name, *_), same in alike.items():
        for first, second in combinations(same, 2):
            axis = next((axis for axis in _BETWEEN_RUNS if first[axis] != second[axis]), None)
            if axis is not None and meet(first, second, [each for each in IN_ONE_RUN if each != "tasks"]):
                both = f"{shown(first[axis][0])} and {shown(second[axis][0])}"
                text = f"{both} are the same for task {name}, so that two sets of rows would have one key; omit one"
                problems.add(f"{opened.where(axis)}: {axis}: {text}")
    problems.raise_any()


def _meant(axis: str, value: Any, task: Task) -> Any:
    """What the value of an axis means for a task: its own where the study says nothing."""
    own = {"shots": task.shots, "sampling": task.sampling}
    if axis == "protocols":
        return protocol_name(task, value)
    return own.get(axis) if value is None else value


_SHARED = tuple(SweepOptions.model_fields)


def requests_of(crossing: Crossing) -> list[RunRequest]:
    """The request of every run of a study, those of a model together."""
    return [_request(crossing.opened.study, box) for box in crossing.runs]


def _request(study: Study, box: Box) -> RunRequest:
    shared = {name: box[name] if name in box else getattr(study, name) for name in _SHARED}
    demos_by = tuple(name for name in box["demos_by"] if name is not None)
    options = RunOptions.checked(
        **{**shared, "demos_by": demos_by},
        seeds=seeds_text(box["seeds"]),
        positions=box["positions"][0],
        shots=box["shots"][0],
        order_seed=box["orders"][0],
        sampling=box["sampling"][0],
        limit=study.limit,
    )
    return RunRequest(
        tasks=tuple(box["tasks"]),
        model=box["models"][0],
        options=options,
        protocol=box["protocols"][0],
        data_dir=None if study.data_dir is None else Path(study.data_dir),
        chat=study.conversation,
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in the form of `run --seeds`: a number of seeds if they count from 0, or a list."""
    if tuple(seeds) == tuple(range(len(seeds))):
        return str(len(seeds))
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")
