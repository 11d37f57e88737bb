"""The values of a study's axes: how they are shown, and which of them an exclusion names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.options import ModelOptions
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.format import Task
from deepthink_cli.updates.texts import checked_rule

MOST = 8  # values that a message lists

Tasks = Mapping[str, Sequence[Task]]  # the tasks by the value of the axis: one of the catalogue, or those of a file


def shown(value: object) -> str:
    """A value as text: a model by its options, null for the task's own."""
    if isinstance(value, ModelOptions):
        changed = value.model_dump(exclude_defaults=True, exclude={"model"})
        return value.model if not changed else f"{value.model} with {', '.join(f'{k} {v}' for k, v in changed.items())}"
    return "null" if value is None else str(value)


def listed(values: Sequence[object]) -> str:
    """The first values of an axis as text."""
    return ", ".join([*map(shown, values[:MOST]), *(["..."] if len(values) > MOST else [])])


def matching(axis: str, written: Any, values: Sequence[Any], tasks: Tasks) -> list[Any]:
    """The values of an axis that an exclusion names: equal ones, models by their id, tasks also by their group."""
    if axis == "tasks":
        names = {written}
        with suppress(InputError):
            names |= {task.name for task in find_tasks([str(written)])} if not _is_file(written) else set()
        return [value for value in values if value in names or {task.name for task in tasks[value]} <= names]
    if axis == "models" and isinstance(written, str):
        return [value for value in values if value.model == written]
    if axis == "models" and isinstance(written, dict):
        return [value for value in values if all(getattr(value, name, None) == each for name, each in written.items())]
    if axis == "updates":
        with suppress(ValueError):
            written = checked_rule(written)
    return [value for value in values if value == written and isinstance(written, bool) == isinstance(value, bool)]


def _is_file(name: object) -> bool:
    return str(name).endswith((".yaml", ".yml"))
