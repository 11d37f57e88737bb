"""`deepthink quantize`: store a memory in 8 or 4 bits a number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, report, write_json
from deepthink_cli.cli.data_options import (
    DataDir,
    Labels,
    MemoryFile,
    ProtocolName,
    RowArguments,
    TaskName,
    values_of_memory,
)
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import Problems
from deepthink_cli.io.text import size
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag
from deepthink_cli.plugins.memories.compared_rows import RowChoice, label_json, label_lines
from deepthink_cli.selection.options import Limit

if TYPE_CHECKING:
    from deepthink_cli.plugins.memories.labels import ComparedLabels
    from deepthink_cli.plugins.memories.quantize import QuantizedFile
    from deepthink_cli.tasks.sources import Source

To = Annotated[
    Literal["int8", "int4"],
    Flag(OUTPUT, "Bits per number: int8 or int4.", variable=False),
]
Output = Annotated[
    Path,
    Flag(OUTPUT, "Output file of the quantized memory.", "FILE", short="-o", variable=False),
]
Rows = Annotated[
    str | None,
    Flag(
        OUTPUT,
        "Also label these rows with both memories, and report what differs; --task names those of a task.",
        "ROWS",
        name="eval",
        variable=False,
    ),
]


@about(
    "quantize mem.safetensors --to int8 -o mem8.safetensors --eval rows.csv",
    first="to output evaluated task protocol limit data_dir json",
)
@grouped
def quantize(
    context: typer.Context,
    memory: MemoryFile,
    output: Output,
    to: To = "int8",
    evaluated: Rows = None,
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
    """Store a memory in 8 or 4 bits a number.

    Keys are scaled per channel, values per token. Every command reads it as any other memory. With --eval or --task,
    the labels that change are reported.
    """
    from deepthink_cli.artifact.opening import model_options, open_memory
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.plugins.memories.labels import compare_labels, plan_comparison
    from deepthink_cli.tasks.sources import source_of

    model, problems = for_memory(context, model), Problems()
    source: Source | None = None  # the rows are checked also if it is wrong
    options = problems.tried(model.checked)
    opened = problems.tried(open_memory, memory)
    paths: dict[str, Any] = {"task": task, "data_dir": data_dir, "config": common.config}
    with problems.collected():
        check_apart(output, read_by(memory, evaluated, **paths))
    with problems.collected():
        source = source_of(data_dir, model.offline)
    with problems.collected():
        file = reading.source(evaluated, values_of_memory(context, evaluated, labels), Show(common))
        choice = RowChoice.checked(context, file, task, protocol, limit, source)
    problems.raise_any()
    from deepthink_cli.plugins.memories.quantize import quantize as quantize_file  # with torch

    used = model_options(opened, options)
    check_apart(output, read_by(model=used.model))
    with Show(common, bar=not common.as_json) as tell:
        planned = None  # all is checked before a file is written
        if choice is not None:
            rows = choice.reader(tell)(opened)
            planned = plan_comparison(opened, opened, lambda _: rows, options, tell)
        result, compared = quantize_file(memory, to, output), None
        note(f"wrote {output} ({size(result.header.size)})", common.quiet)
        if planned is not None:
            compared = compare_labels(planned.with_after(result.change.after), tell)
    if common.as_json:
        write_json(_json(result, compared))
    else:
        report(*_lines(result, compared, output))


def _lines(result: QuantizedFile, labels: ComparedLabels | None, output: Path) -> list[Any]:
    before, after, change = result.source.size, result.header.size, result.change.tensors
    assert change is not None
    lines: list[Any] = [
        f"size    {size(before)} -> {size(after)}, {result.share:.3f} of the bytes",
        f"change  keys {change.whole.keys or 0:.3%}, values {change.whole.values or 0:.3%} "
        f"(relative, iteration {result.change.after.iterations[-1]})",
    ]
    if labels is None:
        return [*lines, f"labels  not compared; run: deepthink diff {result.source.path} {output} ROWS"]
    return [*lines, "", "A is the memory, B its quantized form.", *label_lines(labels)]


def _json(result: QuantizedFile, labels: ComparedLabels | None) -> dict[str, Any]:
    change, form = result.change.tensors, result.header.metadata.quantized
    assert change is not None
    assert form is not None
    return {
        "file": result.header.path,
        "source": result.source.path,
        "to": form.dtype,
        "group": form.group,
        "bytes_before": result.source.size,
        "bytes_after": result.header.size,
        "share": result.share,
        "change": {"keys": change.whole.keys, "values": change.whole.values},
        "sha256": result.header.metadata.sha256,
        "labels": None if labels is None else label_json(labels),
    }
