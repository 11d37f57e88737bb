"""A run as its options state it, before anything is read; a worker on another machine plans the same run from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, with_config

from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, option
from deepthink_cli.experiments.options import RunOptions
from deepthink_cli.experiments.plan import RunPlan
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.columns import demonstrations_for
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.sources import source_of


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class RunRequest:
    """The model, tasks and options of one run: hashable, picklable, and JSON by `as_json` and `of_json`.

    `tasks` are names of tasks and groups, and paths of task files; `demonstrations` is the path of a file of them, for
    one task and one seed. Relative paths are those of the process that plans.
    """

    tasks: tuple[str, ...]
    model: ModelOptions = field(default_factory=ModelOptions.checked)
    options: RunOptions = field(default_factory=RunOptions.checked)
    protocol: str = "official"
    data_dir: Path | None = None
    chat: Chat | None = None
    demonstrations: str | None = None

    @classmethod
    def of_json(cls, values: Any) -> RunRequest:
        """The request that `as_json` gave as these JSON values; raises pydantic's ValidationError for others."""
        return _ADAPTER.validate_python(values)

    def as_json(self) -> dict[str, Any]:
        """The request as JSON values."""
        values: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return values

    def plan(self) -> RunPlan:
        """Find the tasks, and read the file of demonstrations if there is one.

        Raises InputError for no task, an unknown one, a data directory that does not exist, iterations beyond T, and
        wrong demonstrations.
        """
        tasks = run_tasks(self.tasks)
        source = source_of(self.data_dir, self.model.offline)
        _ = self.options.scored  # refuses iterations beyond T
        return RunPlan(tuple(tasks), self.options, self.protocol, source, self._given(tasks), self.chat)

    def _given(self, tasks: Sequence[Task]) -> DemonstrationSet | None:
        """The demonstrations of the file; raises InputError for several tasks or seeds."""
        name = self.demonstrations
        if name is None:
            return None
        if len(tasks) > 1 or len(self.options.every_seed) > 1:
            raise InputError.of(
                "demos", name, f"only for one task and one seed; name one task and omit {option('seeds')}"
            )
        return demonstrations_for(tasks[0], name)


_ADAPTER = TypeAdapter(RunRequest)


def run_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of a run by their names; raises InputError if there are none, and for unknown ones."""
    if not names:
        raise InputError.of("task", None, f"no task; name one or more, as in {option('task')} classic")
    return find_tasks(names)
