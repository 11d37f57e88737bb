"""Made-up rows of built-in tasks, in the shape of their data sets: the task's example many times, each another."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.format import Task

ROWS = 90  # of every split


def write_task_rows(data: Path, names: Iterable[str]) -> Path:
    """A data directory with every split that runs of these tasks read."""
    for task in find_tasks(list(names)):
        splits = {task.demonstrations, task.dev, *(protocol.split for protocol in task.protocols.values())}
        folder = data / task.folder
        folder.mkdir(parents=True, exist_ok=True)
        for place, split in enumerate(sorted(filter(None, splits))):
            lines = (json.dumps(_row(task, place * ROWS + number)) for number in range(ROWS))
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return data


def _row(task: Task, number: int) -> dict[str, Any]:
    """The example with a number before its text, and the next of the labels."""
    row, column = dict(task.example), next(iter(task.fields.values())).column
    row[column] = f"Number {number}: {row[column]}"
    answer = task.answer.column
    if task.labels is not None:
        label = number % len(task.labels)
        row[answer] = label if isinstance(row[answer], int) else task.labels[label]
    return row
