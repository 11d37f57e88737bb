"""The axes of a study with its tasks found, and the checks of each that need nothing but files on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deepthink_cli.errors import InputError, Problem, Problems, naming_options, parameter
from deepthink_cli.experiments.study.axes import Box, Tasks, shown
from deepthink_cli.experiments.study.files import OpenedStudy, is_path
from deepthink_cli.experiments.study.format import AXES, Study
from deepthink_cli.meaning import meaningless
from deepthink_cli.tasks.catalogue import PROTOCOLS, find_tasks
from deepthink_cli.tasks.files import read_tasks
from deepthink_cli.tasks.format import Task

_OPTIONS = {**Study.option_names(), "orders": "order_seed"}  # options of a run by the fields of a study
_FIELDS = {option: field for field, option in _OPTIONS.items()}


def resolved_axes(opened: OpenedStudy, problems: Problems) -> tuple[Box, Tasks]:
    """The values of every axis, groups of tasks as their tasks, and the tasks by these values.

    Collects a line for every value that is duplicated, unknown or not on this machine. Raises InputError with all of
    them if a task is unknown.
    """
    tasks: Tasks = {}
    with problems.collected():
        tasks = _tasks(opened)
    for check in (_duplicates, _paths, _scored, _conditions):
        problems.add(*check(opened))
    if not tasks:
        problems.raise_any()
    problems.add(*_protocols(opened, tasks))
    return {**opened.study.axes(), "tasks": tuple(tasks)}, tasks


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
            if written.endswith((".yaml", ".yml")):
                tasks[written] = members
            else:
                tasks |= {task.name: [task] for task in members}
    problems.raise_any()
    return tasks


def _named(written: str, where: str) -> list[Task]:
    if written.endswith((".yaml", ".yml")):
        if not Path(written).is_file():
            raise InputError(f"{where}: {written}: no such task file; paths are relative to the study's folder")
        return read_tasks(written)  # its messages name its own lines
    try:
        return find_tasks([written])
    except InputError as error:
        raise InputError(*(Problem(each.reason, place=f"{where}: {each.value}") for each in error.problems)) from error


def _duplicates(opened: OpenedStudy) -> Iterator[str]:
    for axis in AXES:
        values = opened.study.models if axis == "models" else opened.written(axis)
        for number, value in enumerate(values if isinstance(values, list | tuple) and axis != "tasks" else ()):
            if value in values[:number]:
                yield f"{opened.where(axis, number)}: {axis}: {shown(value)} is duplicated; keep one"


def _paths(opened: OpenedStudy) -> Iterator[str]:
    for number, options in enumerate(opened.study.models):
        if is_path(options.model) and not Path(options.model).expanduser().exists():
            yield (
                f"{opened.where('models', number)}: models: {options.model}: no such file or directory; paths are "
                "relative to the study's folder"
            )
    folder = opened.study.data_dir
    if folder is not None and not Path(folder).is_dir():
        yield f"{opened.where('data_dir')}: data_dir: {folder}: no such directory; name one, or omit it"


def _scored(opened: OpenedStudy) -> Iterator[str]:
    with naming_options(parameter):
        try:
            _ = opened.study.scored
        except InputError as error:
            for problem in error.problems:
                yield f"{opened.where('at')}: at: {problem.value}: {problem.reason}"


def _conditions(opened: OpenedStudy) -> Iterator[str]:
    study = opened.study
    values = {_OPTIONS.get(field, field): getattr(study, field) for field in type(study).model_fields}
    given = [_OPTIONS.get(field, field) for field in type(study).model_fields if opened.written(field) is not None]
    for option, rule in meaningless("study", given, values):
        field = _FIELDS.get(option, option)
        yield f"{opened.where(field)}: {field}: {rule.refusal(lambda name: _FIELDS.get(name, name))}"


def _protocols(opened: OpenedStudy, tasks: Tasks) -> Iterator[str]:
    known = dict.fromkeys([*PROTOCOLS, *(name for each in tasks.values() for task in each for name in task.protocols)])
    for number, name in enumerate(opened.study.protocols):
        if name not in known:
            yield f"{opened.where('protocols', number)}: protocols: {name}: no task has it; use {' or '.join(known)}"
