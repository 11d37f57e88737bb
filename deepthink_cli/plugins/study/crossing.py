"""The runs of a study: boxes of combinations of the values of its axes, less the excluded ones; and what they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import DeepThinkError, InputError, Problem, Problems, naming_options, parameter
from deepthink_cli.events import Tell, once
from deepthink_cli.experiments.estimate import Estimate, estimate_runs
from deepthink_cli.experiments.experiment import AXES, BETWEEN_RUNS, Experiment, run_tasks
from deepthink_cli.experiments.folder import found_in
from deepthink_cli.experiments.prepare import prepare
from deepthink_cli.experiments.results import grouped
from deepthink_cli.io.hub import NotInCache
from deepthink_cli.meaning import meaningless
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.plugins.study.study import OpenedStudy, Study, is_path
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.files import SUFFIXES, read_tasks
from deepthink_cli.tasks.format import PROTOCOLS, Task
from deepthink_cli.updates import checked_rule

Values = tuple[Any, ...]
Box = Mapping[str, Values]


def without(boxes: Iterable[Box], excluded: Mapping[str, Values]) -> list[Box]:
    """Boxes that hold, each once, the combinations of `boxes` which do not have an excluded value in every such axis.

    An axis that `excluded` does not name is excluded with all its values.
    """
    return [rest for box in boxes for rest in _rest(box, excluded)]


def _rest(box: Box, excluded: Mapping[str, Values]) -> Iterator[Box]:
    """The box less the excluded one: at most one box for each axis that `excluded` names, in the order of the axes."""
    if not overlaps(box, excluded):
        yield box
        return
    inner = dict(box)
    for axis in (axis for axis in box if axis in excluded):
        outside = tuple(value for value in inner[axis] if value not in excluded[axis])
        if outside:
            yield {**inner, axis: outside}
        inner[axis] = tuple(value for value in inner[axis] if value in excluded[axis])


def overlaps(box: Box, other: Mapping[str, Values]) -> bool:
    """Whether some combination of the box has a value of `other` in every axis that `other` names."""
    return all(any(value in values for value in box[axis]) for axis, values in other.items())


def split(box: Box, axes: Iterable[str]) -> Iterator[Box]:
    """Boxes with a single value in each of these axes, in the order of the values."""
    names = list(axes)
    for values in product(*(box[axis] for axis in names)):
        yield {**box, **{axis: (value,) for axis, value in zip(names, values, strict=True)}}


def count(box: Box) -> int:
    """The number of combinations in a box."""
    return prod(map(len, box.values()))


MAX_LISTED = 8  # values that a message lists

Tasks = Mapping[str, Sequence[Task]]  # the tasks by the value of the axis: one of the catalogue, or those of a file


def shown(value: object) -> str:
    """A value as text: a model by its options, null for the task's own."""
    if isinstance(value, ModelOptions):
        changed = value.model_dump(exclude_defaults=True, exclude={"model"})
        return value.model if not changed else f"{value.model} with {', '.join(f'{k} {v}' for k, v in changed.items())}"
    return "null" if value is None else str(value)


def matching(axis: str, written: Any, values: Sequence[Any], tasks: Tasks) -> list[Any]:
    """The values of an axis that an exclusion names: equal ones, models by their id, tasks also by their group."""
    if axis == "tasks":
        names = {written}
        with suppress(InputError):
            if not str(written).endswith(SUFFIXES):
                names |= {task.name for task in find_tasks([str(written)])}
        return [value for value in values if value in names or {task.name for task in tasks[value]} <= names]
    if axis == "models" and isinstance(written, str):
        return [value for value in values if value.model == written]
    if axis == "models" and isinstance(written, dict):
        return [value for value in values if all(getattr(value, name, None) == each for name, each in written.items())]
    if axis == "updates" and isinstance(written, str):
        with suppress(ValueError):
            written = checked_rule(written)
    return [value for value in values if value == written and isinstance(written, bool) == isinstance(value, bool)]


_OPTIONS = Study.option_names()  # options of a run by the fields of a study
_FIELDS = {option: field for field, option in _OPTIONS.items()}


@dataclass(frozen=True)
class Crossing:
    """The runs of a study, those of a model together: each crosses the values of its box.

    Rows that two runs have in common, as of a task's own number of shots and the same number, are made once.
    """

    opened: OpenedStudy
    boxes: Sequence[Box]
    tasks: Tasks

    @property
    def runs(self) -> list[Experiment]:
        """The experiment of every run, with one value in each axis that a run does not cross."""
        shared = {name: getattr(self.opened.study, name) for name in Experiment.model_fields}
        boxes = ({**box, "demos_by": tuple(filter(None, box["demos_by"]))} for box in self.boxes)
        return [Experiment.model_construct(None, **{**shared, **box}) for box in boxes]

    def find(self, model: ModelOptions, tell: Tell) -> ModelSpec:
        """Open a model; raises InputError with its place in the study, also if it cannot be downloaded."""
        try:
            return find_model(model, tell)
        except DeepThinkError as error:
            where = self.opened.where("models", self.opened.study.models.index(model))
            raise InputError(*(f"{where}: models: {text}" for text in error.messages)) from error


def cross_study(opened: OpenedStudy) -> Crossing:
    """Cross the axes of a study, before a model is opened.

    Raises InputError, with a line for each mistake, for values that are duplicated, unknown or not on this machine, for
    an exclusion that matches nothing, and if nothing is left.
    """
    problems = Problems()
    tasks = problems.tried(_tasks, opened) or {}
    problems.add(*_mistakes(opened))
    if not tasks:
        problems.raise_any()
    problems.add(*_protocols(opened, tasks))
    axes: Box = {axis: getattr(opened.study, axis) or (None,) for axis in AXES} | {"tasks": tuple(tasks)}
    boxes = problems.tried(_without_excluded, opened, axes, tasks)
    problems.raise_any()
    if not boxes:
        raise InputError(f"{opened.where('exclude')}: exclude: leaves no combination of the axes; exclude fewer")
    models = axes["models"]
    runs = [run for box in boxes for run in split(box, BETWEEN_RUNS)]
    runs.sort(key=lambda run: models.index(run["models"][0]))
    return Crossing(opened, runs, tasks)


def plan_models(crossing: Crossing, out: Path, may_load: bool, tell: Tell) -> Iterator[tuple[str, int, Estimate]]:
    """The name, the number of runs and the estimate of every model; with `may_load`, models that are here are timed."""
    tell = once(tell)
    for name, boxes in grouped(crossing.boxes, lambda box: shown(box["models"][0])).items():
        offline = boxes[0]["models"][0].model_copy(update={"offline": True})
        runs = replace(crossing, boxes=[{**box, "models": (offline,)} for box in boxes]).runs
        try:
            estimate = estimate_runs(prepare(runs, out, tell), out, may_load, tell)
        except DeepThinkError as error:
            absent = "the model, or its data, is not on this machine, and a plan downloads nothing"
            reason = absent if isinstance(error, NotInCache) else error.messages[0]
            rows = sum(
                len(run_tasks(run.tasks)) * len(run.seeds) * max(1, len(run.demos_by)) * run.rows_of_job(technique)
                for run in runs
                for technique in run.chosen_techniques
            )
            written = min(rows, sum(row.setting.model == offline.model for row in found_in(out)))
            estimate = Estimate(rows - written, written, reason=reason)
        yield name, len(boxes), estimate


def _without_excluded(opened: OpenedStudy, axes: Box, tasks: Tasks) -> list[Box]:
    boxes, problems = [axes], Problems()
    for number, excluded in enumerate(opened.study.exclude):
        with problems.collected():
            values = _excluded(opened, number, axes, tasks)
            if not all(values.values()):  # a scale or an option has removed them
                continue
            if not any(overlaps(box, values) for box in boxes):
                named = ", ".join(f"{axis}: {value}" for axis, value in excluded.items())
                where = f"{opened.where('exclude', number)}: exclude: {named}"
                raise InputError(f"{where}: matches nothing that the exclusions before it leave; omit it")
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
                listed = [*map(shown, known[:MAX_LISTED]), *(["..."] if len(known) > MAX_LISTED else [])]
                problems.add(f"{where}: {shown(value)} matches nothing: {axis} is {', '.join(listed)}")
            values[axis] += tuple(matched)
    problems.raise_any()
    return values


def _tasks(opened: OpenedStudy) -> Tasks:
    """The tasks of every value; raises InputError for an unknown task, and for one that two values name."""
    problems, tasks, values = Problems(), dict[str, list[Task]](), dict[str, str]()
    for number, written in enumerate(opened.study.tasks):
        where = f"{opened.where('tasks', number)}: tasks"
        with problems.collected():
            members = _named(written, where)
            if twice := [task.name for task in members if task.name in values]:
                raise InputError(f"{where}: {twice[0]} is duplicated: {values[twice[0]]} has it already; omit one")
            values |= {task.name: written for task in members}
            if written.endswith(SUFFIXES):
                tasks[written] = members
            else:
                tasks |= {task.name: [task] for task in members}
    problems.raise_any()
    return tasks


def _named(written: str, where: str) -> list[Task]:
    if written.endswith(SUFFIXES):
        if not Path(written).is_file():
            raise InputError(f"{where}: {written}: no such task file; paths are relative to the study's folder")
        return read_tasks(written)  # its messages name its own lines
    try:
        return find_tasks([written])
    except InputError as error:
        raise InputError(*(Problem(each.reason, place=f"{where}: {each.value}") for each in error.problems)) from error


def _mistakes(opened: OpenedStudy) -> Iterator[str]:
    """A line for every value that is duplicated or not on this machine, and for fields without a meaning."""
    study = opened.study
    for axis in AXES:
        values = study.models if axis == "models" else opened.written(axis)
        for number, value in enumerate(values if isinstance(values, list | tuple) and axis != "tasks" else ()):
            if value in values[:number]:
                yield f"{opened.where(axis, number)}: {axis}: {shown(value)} is duplicated; keep one"
    for number, options in enumerate(study.models):
        if is_path(options.model) and not Path(options.model).expanduser().exists():
            yield (
                f"{opened.where('models', number)}: models: {options.model}: no such file or directory; paths are "
                "relative to the study's folder"
            )
    if study.data_dir is not None and not Path(study.data_dir).is_dir():
        yield f"{opened.where('data_dir')}: data_dir: {study.data_dir}: no such directory; name one, or omit it"
    with naming_options(parameter):
        try:
            _ = study.scored
        except InputError as error:
            for problem in error.problems:
                yield f"{opened.where('at')}: at: {problem.value}: {problem.reason}"
    fields = type(study).model_fields
    given = [_OPTIONS.get(field, field) for field in fields if opened.written(field) is not None]
    for name, rule in meaningless(
        "study", given, {_OPTIONS.get(field, field): getattr(study, field) for field in fields}
    ):
        field = _FIELDS.get(name, name)
        yield f"{opened.where(field)}: {field}: {rule.refusal(lambda each: _FIELDS.get(each, each))}"


def _protocols(opened: OpenedStudy, tasks: Tasks) -> Iterator[str]:
    known = dict.fromkeys([*PROTOCOLS, *(name for each in tasks.values() for task in each for name in task.protocols)])
    for number, name in enumerate(opened.study.protocols):
        if name not in known:
            yield f"{opened.where('protocols', number)}: protocols: {name}: no task has it; use {' or '.join(known)}"
