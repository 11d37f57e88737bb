"""The rows that two memories label, from a file or a task, and the report of the labels that differ."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from deepthink_cli.cli.console import table
from deepthink_cli.cli.sources import is_typed
from deepthink_cli.data.rows import rows_or_errors
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import by_chance
from deepthink_cli.io.text import named
from deepthink_cli.selection.options import TaskOptions

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.events import Tell
    from deepthink_cli.plugins.memories.labels import ChangedRow, ComparedLabels, LabelChanges, RowsFor
    from deepthink_cli.tasks.rows import EvaluatedRows
    from deepthink_cli.tasks.sources import Source

SHOWN = 5  # rows, layers and tokens in a report; --json has all


@dataclass(frozen=True)
class RowChoice:
    """Rows that were asked for: a file, or a task under a protocol, or a sample of `limit`."""

    file: RowSource | None
    task: str | None
    protocol: str
    limit: int | None
    source: Source

    @classmethod
    def checked(
        cls,
        context: typer.Context,
        file: RowSource | None,
        task: str | None,
        protocol: str,
        limit: object,
        source: Source | None,
    ) -> RowChoice | None:
        """The choice, None without rows; raises InputError for a wrong limit, and for rows that can be read only once.

        A limit that nobody typed, of the environment or a config file, is for other commands if there are no rows.
        """
        rows = TaskOptions.checked(limit=limit).limit
        if source is None or (file is None and task is None):
            if limit is not None and is_typed(context, "limit"):
                raise InputError.of("limit", limit, "no rows are labelled; give ROWS or --task, or omit it")
            return None
        if file is not None and file.read_once:
            raise InputError(f"ROWS {file.path}: both memories read the rows; give a file")
        return cls(file, task, protocol, rows, source)

    def reader(self, tell: Tell) -> RowsFor:
        """The function that reads the rows in the template of a memory."""
        from deepthink_cli.tasks.rows import in_columns, rows_of_file, rows_of_task

        def rows(memory: OpenedMemory) -> EvaluatedRows:
            if self.file is None:
                return rows_of_task(memory, str(self.task), self.protocol, self.source, self.limit, tell)
            file = in_columns(memory, self.file, self.task)
            return rows_of_file(memory, file, self.limit, labelled=is_labelled(memory, file))

        return rows


def is_labelled(memory: OpenedMemory, file: RowSource) -> bool:
    """Whether the first row of a file has a true label; raises InputError for a file without rows."""
    from deepthink_cli.tasks.rows import in_columns

    source, template = in_columns(memory, file), memory.provenance.demonstrations.template
    if source.row_format == "txt":
        return False
    row = next(rows_or_errors(source))
    if isinstance(row, InputError):
        raise row
    with suppress(InputError):  # a row in a task's columns, some of which are missing
        row = source.converted(row)
    return template.label_field in row.fields


def label_lines(compared: ComparedLabels) -> list[Any]:
    """The report of the labels that differ: their number, the labels, the rows, and whether chance explains it."""
    changes = compared.changes
    count, where = len(changes.rows), f"{compared.task}, {compared.split}" if compared.task else compared.split
    title = f"Labels of {changes.n:,} rows ({where}): {count:,} differ ({count / changes.n:.2%})"
    lines: list[Any] = [title]
    if count:
        moved = [
            [named(old), named(new), f"{number:,}"] for (old, new), number in list(changes.transitions.items())[:SHOWN]
        ]
        rows = [_row(row) for row in changes.rows[:SHOWN]]
        lines += [table("A", "B", "rows", rows=moved, left=2)]
        lines += ["", table("row", "A", "B", "true label", "text", rows=rows, left=5)]
        lines += [f"... and {count - SHOWN:,} more rows: --json lists all"] if count > SHOWN else []
    lines += _accuracy(changes)
    lines += [f"skipped {number}: {reason}" for reason, number in compared.skipped.items()]
    return lines


def label_json(compared: ComparedLabels) -> dict[str, Any]:
    """The same as JSON values."""
    changes, labelled = compared.changes, compared.changes.labelled
    return {
        "task": compared.task,
        "split": compared.split,
        "n": changes.n,
        "changed": len(changes.rows),
        "transitions": [{"a": a, "b": b, "rows": rows} for (a, b), rows in changes.transitions.items()],
        "rows": [
            {"index": row.index, "where": row.query.where, "a": row.before, "b": row.after, "gold": row.query.gold}
            for row in changes.rows
        ],
        "log_probability_of_a": changes.log_probability,
        "log_probability_of_a_ci95": changes.log_probability_ci95,
        "largest_change": changes.largest,
        "labelled": None if labelled is None else {**asdict(labelled), "mcnemar_p": labelled.changes.p},
        "skipped": compared.skipped,
    }


def _row(row: ChangedRow) -> list[str]:
    text = row.query.text
    shown = " ".join((text if isinstance(text, str) else " | ".join(text.values())).split())
    return [
        str(row.index),
        row.before,
        row.after,
        row.query.gold or "",
        f"{shown:.42}..." if len(shown) > 45 else shown,
    ]


def _accuracy(changes: LabelChanges) -> list[str]:
    low, high = changes.log_probability_ci95 or (changes.log_probability, changes.log_probability)
    lines = [
        f"log-probability of A's label: {changes.log_probability:+.4f} nats ({low:+.4f} to {high:+.4f}) in the mean",
        f"log-probability of any label: at most {changes.largest:.4f} nats up or down",
    ]
    if (labelled := changes.labelled) is None:
        return lines
    of_gold = labelled.changes
    return [
        *lines,
        f"log-probability of the true label: {of_gold.log_probability:+.4f} nats in the mean",
        f"accuracy: A {labelled.accuracy_before:.2%}, B {labelled.accuracy_after:.2%}",
        f"B fixes {of_gold.fixed} rows and breaks {of_gold.broken}: {by_chance(of_gold.p)}",
    ]
