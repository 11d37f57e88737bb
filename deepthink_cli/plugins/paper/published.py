"""The paper's figures (published.yaml), by model and task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

from deepthink_cli.report.arms import Arm
from deepthink_cli.report.tables import PublishedFigure, TableRow

OURS = "Deep-Thinking"
Percent = Annotated[float, Field(ge=0, le=100)]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Line(_Data):
    """One method's accuracies; `plain` marks plain in-context learning; `note` names a note of its table."""

    model: str
    method: str
    accuracy: list[Percent]
    plain: bool = False
    note: str | None = None


class Table(_Data):
    """A table, or its part with or without a dev set; `dev` is None if the paper does not say."""

    table: int
    columns: list[str]
    seeds: int
    rows: list[Line]
    dev: bool | None = None
    notes: dict[str, str] = {}


@dataclass(frozen=True)
class Cell(PublishedFigure):
    """One published accuracy, with its footnote."""

    dev: bool | None
    seeds: int
    model: str
    task: str
    method: str
    plain: bool
    note: str | None


class Published(_Data):
    """All tables; `models`, `tasks` and `methods` give every name's aliases, `means` the number of tasks of a mean.

    `gains` are the gains in the text of the paper, in points, by model and group.
    """

    source: str
    models: dict[str, list[str]]
    tasks: dict[str, list[str]]
    methods: dict[str, list[str]]
    means: dict[str, int]
    tables: list[Table]
    gains: dict[str, dict[str, float]] = {}

    def cells(self) -> Iterator[Cell]:
        """Every figure of every table."""
        for table in self.tables:
            for row in table.rows:
                for task, accuracy in zip(table.columns, row.accuracy, strict=True):
                    yield Cell(
                        **table.model_dump(include={"table", "dev", "seeds"}),
                        **row.model_dump(include={"model", "method", "plain"}),
                        task=task,
                        accuracy=accuracy,
                        note=row.note and table.notes[row.note],
                    )

    def find(self, model: str, task: str, dev: bool, sampling: str | None = None) -> tuple[Cell | None, Cell | None]:
        """Plain in-context learning and Deep-Thinking for a model and a task or mean, by name or alias.

        `dev` says whether T was chosen on a dev set; a table that does not say fits both. With demonstrations that a
        method of Table 1 chose, by its name or alias, the first figure is that method's, and there is no second one.
        """
        model, task = _canonical(model, self.models), _canonical(task, self.tasks)
        of_task = [cell for cell in self.cells() if cell.model == model and cell.task == task]
        if (method := _canonical(sampling or "", self.methods)) in self.methods:
            return next((cell for cell in of_task if cell.method == method), None), None
        cells = [cell for cell in of_task if cell.dev in (None, dev)]
        plain = next((cell for cell in cells if cell.plain), None)
        return plain, next((cell for cell in cells if cell.method == OURS), None)

    def gain(self, model: str, task: str) -> float | None:
        """The gain over plain in-context learning that the text states, in points; None where it states none."""
        return self.gains.get(_canonical(model, self.models), {}).get(task)

    def tasks_of_mean(self, task: str) -> int | None:
        """The number of tasks in the paper's mean; None for a single task."""
        return self.means.get(_canonical(task, self.tasks))


@cache
def published() -> Published:
    """The paper's tables."""
    text = (Path(__file__).parent / "published.yaml").read_text(encoding="utf-8")
    return Published.model_validate(yaml.safe_load(text))


def figures_of(row: TableRow) -> tuple[Cell | None, Cell | None]:
    """The paper's figures for the same model, task, and way of choosing demonstrations and T, as `Published.find`."""
    return figures(row.arm, row.name, row.on_dev)


def figures(arm: Arm, task: str, dev: bool) -> tuple[Cell | None, Cell | None]:
    """The paper's figures for an arm, as `Published.find`.

    It has no other techniques and update rules, no corrected scores, no scores but sums and no repeated queries.
    """
    if arm.technique or arm.calibration or arm.scoring or arm.update:
        return None, None
    return published().find(arm.model, task, dev, arm.sampling)


def notes_on(rows: Sequence[TableRow]) -> list[str]:
    """The sources of the paper's figures, and their differences in kind from the run's figures."""
    if not rows:
        return ["The paper has no figures for these models and tasks"]
    paper, numbers = published(), sorted({row.paper_table for row in rows if row.paper_table})
    notes = [f"Paper: {paper.source}, Table {' and '.join(map(str, numbers))}; means of ten seeds"]
    if any(number > 1 for number in numbers):
        notes.append("Paper: Tables 2 and 3 do not say whether T was chosen on a dev set")
    cells = [cell for row in rows for cell in (row.paper_plain, row.paper_thinking) if isinstance(cell, Cell)]
    notes += [f"Paper: {cell.note}" for cell in cells if cell.note]
    for row in rows:
        tasks = paper.tasks_of_mean(row.name)
        if tasks not in (None, row.tasks):
            notes.append(f"Paper: {row.name} is a mean of {tasks} tasks there, of {row.tasks} here")
    return list(dict.fromkeys(notes))


def _canonical(name: str, aliases: dict[str, list[str]]) -> str:
    lowered = name.lower()
    return next((known for known, others in aliases.items() if lowered in map(str.lower, (known, *others))), name)
