"""`deepthink diff`: the differences between two memories."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, report, table, write_json
from deepthink_cli.cli.data_options import DataDir, Labels, ProtocolName, RowArguments, TaskName, values_of_memory
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.sources import is_typed
from deepthink_cli.data.rows import rows_or_errors
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.evaluation.metrics import by_chance
from deepthink_cli.io.text import named
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import METHOD, Flag
from deepthink_cli.selection.options import Limit, TaskOptions

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.data.source import RowSource
    from deepthink_cli.events import Tell
    from deepthink_cli.plugins.memories.diff import Change, ComparedLabels, LabelledRow, MemoryDiff, RowsFor
    from deepthink_cli.tasks.rows import EvaluatedRows
    from deepthink_cli.tasks.sources import Source

SHOWN = 5  # rows and layers in a report; --json has all

Before = Annotated[Path, typer.Argument(metavar="A", help="A memory.")]
After = Annotated[
    Path | None,
    typer.Argument(metavar="B", help="The memory that A is compared with. Without it, two iterations of A."),
]
Rows = Annotated[
    str | None,
    typer.Argument(
        metavar="ROWS", help="Rows that both label, with or without their true labels; --task names those of a task."
    ),
]
IterationPair = Annotated[
    str | None,
    Flag(
        METHOD,
        "Which kept iterations: one for both, or that of A and that of B, as in 1,5; a number or last. Default: "
        "last; without B the first and the last of A.",
        "T[,T]",
        variable=False,
    ),
]


@about("diff mem.safetensors --at 1,5", first="at task protocol limit data_dir json")
@grouped
def diff(
    context: typer.Context,
    before: Before,
    after: After = None,
    rows: Rows = None,
    at: IterationPair = None,
    *,
    model: Given[ModelOptions],
    task: TaskName = None,
    protocol: ProtocolName = "official",
    limit: Limit = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    reading: RowArguments,
    common: CommonArguments,
) -> None:
    """Compare two memories, or the labels that they give.

    They are compared by provenance and by layer; with rows, by labels, too. Weights are only loaded for rows.
    The exit code is 0 whether or not the memories differ.
    """
    from deepthink_cli.plugins.memories.diff import diff as diff_of
    from deepthink_cli.tasks.sources import source_of

    model, problems = for_memory(context, model), Problems()
    source: Source | None = None  # the rows are checked also if it is wrong
    options = problems.tried(model.checked)
    pair = problems.tried(_opened, before, after, at)
    with problems.collected():
        source = source_of(data_dir, model.offline)
    count = problems.tried(TaskOptions.checked, limit=limit)
    with problems.collected():
        file = reading.source(rows, values_of_memory(context, rows, labels), Show(common))
        if file is not None and file.read_once:
            raise InputError(f"ROWS {file.path}: both memories read the rows; give a file")
        if file is None and task is None and limit is not None and is_typed(context, "limit"):
            raise InputError.of("limit", limit, "no rows are labelled; give ROWS or --task, or omit it")
    problems.raise_any()
    with Show(common, bar=not common.as_json) as tell:
        reader = _reader(file, task, protocol, count.limit, source, tell)
        result = diff_of(*pair, reader, options=options, tell=tell)
    if common.as_json:
        write_json(_json(result))
    else:
        report(*_lines(result))
    if result.not_labelled:
        raise InputError(f"labels: {result.not_labelled}; compare memories of one model and the same labels")


def _reader(
    file: RowSource | None, task: str | None, protocol: str, limit: int | None, source: Source | None, tell: Tell
) -> RowsFor | None:
    """The function that reads the rows in the template of a memory; None without rows."""
    from deepthink_cli.tasks.rows import in_columns, rows_of_file, rows_of_task

    def rows(memory: OpenedMemory) -> EvaluatedRows:
        if file is None:
            return rows_of_task(memory, str(task), protocol, source, limit, tell)
        given = in_columns(memory, file, task)
        return rows_of_file(memory, given, limit, labelled=is_labelled(memory, given))

    return None if file is None and task is None else rows


def is_labelled(memory: OpenedMemory, source: RowSource) -> bool:
    """Whether the first row of a file has a true label; raises InputError for a file without rows."""
    if source.row_format == "txt":
        return False
    row = next(rows_or_errors(source))
    if isinstance(row, InputError):
        raise row
    with suppress(InputError):  # a row in a task's columns, some of which are missing
        row = source.converted(row)
    return memory.provenance.demonstrations.template.label_field in row.fields


def _opened(before: Path, after: Path | None, iteration: str | None) -> tuple[OpenedMemory, OpenedMemory]:
    """Both memories with the iteration that is compared."""
    from deepthink_cli.artifact.format import read_header
    from deepthink_cli.artifact.opening import open_memory

    kept = read_header(before).metadata.kept
    if iteration is not None:
        first, comma, second = (part.strip() for part in iteration.partition(","))
        second = second if comma else first
    elif after is not None:
        first = second = "last"
    elif len(kept) > 1:
        first, second = str(kept[0]), "last"
    else:
        raise InputError(
            f"{before}: keeps one iteration, {kept[0]}; name a second memory, or keep all with deepthink think "
            "--keep all"
        )
    for each in (first, second):
        if each != "last" and not each.isdecimal():
            raise InputError.of("at", iteration, "name one iteration for both, or two as in 1,5; a number or last")
    return open_memory(before, first), open_memory(before if after is None else after, second)


def _lines(result: MemoryDiff) -> list[Any]:
    """The report: differences of the provenance, then the most changed layers, and the labels."""
    width = max(map(len, result.provenance), default=0)
    lines: list[Any] = [f"A  {_named(result.before)}", f"B  {_named(result.after)}", ""]
    for name, pair in result.provenance.items():
        for number, (which, text) in enumerate(zip("AB", pair, strict=True)):
            lines.append(f"{'' if number else name:<{width}}  {which}  {text or '-'}")
    lines += [] if result.provenance else ["Provenance: the same"]
    lines += [f"models differ in their {' and '.join(result.model)}"] if result.model else []
    lines += ["", *_tensor_lines(result)]
    lines += [f"labels not compared: {result.not_labelled}"] if result.not_labelled else []
    return lines if result.labels is None else [*lines, "", *_label_lines(result.labels)]


def _tensor_lines(result: MemoryDiff) -> list[Any]:
    if (tensors := result.tensors) is None:
        return ["keys and values not compared: they have other shapes"]
    whole = tensors.whole
    if not whole.keys and not whole.values:
        return ["Keys and values: the same"]
    lines: list[Any] = [f"Relative change from A to B: keys {_share(whole.keys)}, values {_share(whole.values)}"]
    if result.labels is not None:
        return lines
    layers = sorted(enumerate(tensors.layers), key=lambda item: -item[1].keys - item[1].values)[:SHOWN]
    rows = [[str(n), _share(each.keys), _share(each.values)] for n, each in layers]
    lines += ["", table("layer", "keys", "values", rows=rows)]
    more = len(tensors.layers) - SHOWN
    return [*lines, *([f"... and {more} layers that changed less"] if more > 0 else [])]


def _label_lines(labels: ComparedLabels) -> list[Any]:
    """The labels that differ: their number, the labels, the rows, and whether chance explains it."""
    changed, n, where = labels.changed, len(labels.rows), ", ".join(filter(None, (labels.task, labels.split)))
    lines: list[Any] = [f"Labels of {n:,} rows ({where}): {len(changed):,} differ ({len(changed) / n:.2%})"]
    if changed:
        moved = [[named(a), named(b), f"{number:,}"] for (a, b), number in list(labels.transitions.items())[:SHOWN]]
        lines += [table("A", "B", "rows", rows=moved, left=2), ""]
        lines += [table("row", "A", "B", "true label", "text", rows=list(map(_row, changed[:SHOWN])), left=5)]
        lines += [f"... and {len(changed) - SHOWN:,} more rows: --json lists all"] if len(changed) > SHOWN else []
    if accuracies := labels.accuracies:
        changes = labels.changes
        lines += ["accuracy: A {:.2%}, B {:.2%}".format(*accuracies)]
        lines += [f"B fixes {changes.fixed} rows and breaks {changes.broken}: {by_chance(changes.p)}"]
    return [*lines, *(f"skipped {number}: {reason}" for reason, number in labels.skipped.items())]


def _row(row: LabelledRow) -> list[str]:
    text = row.query.text
    shown = " ".join((text if isinstance(text, str) else " | ".join(text.values())).split())
    shown = f"{shown:.42}..." if len(shown) > 45 else shown
    return [str(row.index), row.before, row.after, row.query.gold or "", shown]


def _named(memory: OpenedMemory) -> str:
    return f"{memory.name}, iteration {memory.iterations[-1]}"


def _share(value: float) -> str:
    return "from zero" if isinf(value) else f"{value:.3%}"


def _json(result: MemoryDiff) -> dict[str, Any]:
    """The report as JSON values."""
    tensors, labels = result.tensors, result.labels

    def changed(change: Change) -> dict[str, float | None]:
        return {name: None if isinf(value) else value for name, value in asdict(change).items()}

    return {
        **{
            which: {"file": memory.name, "iteration": memory.iterations[-1], "sha256": memory.sha256}
            for which, memory in (("a", result.before), ("b", result.after))
        },
        "provenance": {name: {"a": pair[0], "b": pair[1]} for name, pair in result.provenance.items()},
        "model_differences": list(result.model),
        "change": None if tensors is None else changed(tensors.whole),
        "layers": [{"layer": n, **changed(each)} for n, each in enumerate(tensors.layers if tensors else ())],
        "labels": None if labels is None else _label_json(labels),
    }


def _label_json(labels: ComparedLabels) -> dict[str, Any]:
    changes, accuracies = labels.changes, labels.accuracies
    of_gold = {"fixed": changes.fixed, "broken": changes.broken, "mcnemar_p": changes.p}
    return {
        "task": labels.task,
        "split": labels.split,
        "n": len(labels.rows),
        "changed": len(labels.changed),
        "transitions": [{"a": a, "b": b, "rows": rows} for (a, b), rows in labels.transitions.items()],
        "rows": [
            {"index": row.index, "where": row.query.where, "a": row.before, "b": row.after, "gold": row.query.gold}
            for row in labels.changed
        ],
        "labelled": accuracies and {"accuracy": {"a": accuracies[0], "b": accuracies[1]}, **of_gold},
        "skipped": labels.skipped,
    }
