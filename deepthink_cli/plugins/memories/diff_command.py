"""`deepthink diff`: the differences between two memories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, report, table, write_json
from deepthink_cli.cli.data_options import DataDir, Labels, ProtocolName, RowArguments, TaskName, values_of_memory
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import METHOD, Flag
from deepthink_cli.plugins.memories.compared_rows import SHOWN, RowChoice, label_json, label_lines
from deepthink_cli.selection.options import Limit

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.plugins.memories.diff import Change, MemoryDiff, SharedDemonstrations
    from deepthink_cli.tasks.sources import Source

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

    They are compared by provenance and by layer and token; with rows, by labels, too. Weights are only loaded for rows.
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
    with problems.collected():
        file = reading.source(rows, values_of_memory(context, rows, labels), Show(common))
        choice = RowChoice.checked(context, file, task, protocol, limit, source)
    problems.raise_any()
    with Show(common, bar=not common.as_json) as tell:
        result = diff_of(*pair, None if choice is None else choice.reader(tell), options=options, tell=tell)
    if common.as_json:
        write_json(_json(result))
    else:
        report(*_lines(result))
    if choice is not None and result.labels is None:
        raise InputError(f"{result.not_compared[-1]}; compare memories of one model and the same labels")


def _opened(before: Path, after: Path | None, iteration: str | None) -> tuple[OpenedMemory, OpenedMemory]:
    """Both memories with the iteration that is compared."""
    from deepthink_cli.artifact.format import read_header
    from deepthink_cli.artifact.opening import open_memory

    first, second = _iterations(read_header(before), after, iteration)
    return open_memory(before, first), open_memory(before if after is None else after, second)


def _iterations(header: Header, after: Path | None, iteration: str | None) -> tuple[str, str]:
    if iteration is None:
        kept = header.metadata.kept
        if after is None and len(kept) < 2:
            raise InputError(
                f"{header.path}: keeps one iteration, {kept[0]}; name a second memory, or keep all with deepthink "
                "think --keep all"
            )
        return (str(kept[0]) if after is None else "last"), "last"
    first, comma, second = (part.strip() for part in iteration.partition(","))
    chosen = first, second if comma else first
    for each in chosen:
        if each != "last" and not each.isdecimal():
            raise InputError.of("at", iteration, "name one iteration for both, or two as in 1,5; a number or last")
    return chosen


def _lines(result: MemoryDiff) -> list[Any]:
    """The report: differences of the provenance, then the labels, or else the most changed layers and tokens."""
    width = max(map(len, result.provenance), default=0)
    lines: list[Any] = [f"A  {_named(result.before)}", f"B  {_named(result.after)}", ""]
    for name, pair in result.provenance.items():
        for number, (which, text) in enumerate(zip("AB", pair, strict=True)):
            lines.append(f"{'' if number else name:<{width}}  {which}  {text or '-'}")
    lines += [] if result.provenance else ["Provenance: the same"]
    lines += [f"models differ in their {' and '.join(result.model)}"] if result.model else []
    lines += [_demonstrations(result.demonstrations), ""]
    lines += [f"not compared: {reason}" for reason in result.not_compared]
    lines += _tensor_lines(result)
    return lines if result.labels is None else [*lines, "", *label_lines(result.labels)]


def _tensor_lines(result: MemoryDiff) -> list[Any]:
    if (tensors := result.tensors) is None:
        return []
    whole = f"Relative change from A to B: keys {_share(tensors.whole.keys)}, values {_share(tensors.whole.values)}"
    if not tensors.whole.size:
        return ["Keys and values: the same"]
    if result.labels is not None:
        return [whole]
    layers = sorted(tensors.layers.items(), key=lambda item: -item[1].size)[:SHOWN]
    tokens = sorted(enumerate(tensors.tokens), key=lambda item: -item[1].size)[:SHOWN]
    rows = [[str(place), _token(result, place), _share(each.keys), _share(each.values)] for place, each in tokens]
    return [
        whole,
        "",
        table("layer", "keys", "values", rows=[[str(n), _share(each.keys), _share(each.values)] for n, each in layers]),
        *([f"... and {len(tensors.layers) - SHOWN} layers that changed less"] if len(tensors.layers) > SHOWN else []),
        "",
        table("token", "text", "keys", "values", rows=rows, left=2),
        *([f"... and {len(tensors.tokens) - SHOWN} tokens that changed less"] if len(tensors.tokens) > SHOWN else []),
    ]


def _named(memory: OpenedMemory) -> str:
    return f"{memory.name}, iteration {memory.iterations[-1]}"


def _demonstrations(shared: SharedDemonstrations) -> str:
    if shared.same_order:
        return f"demonstrations: the same {shared.both}"
    if not shared.only_before and not shared.only_after:
        return f"demonstrations: the same {shared.both} in another order"
    return f"demonstrations: {shared.both} in both, {shared.only_before} only in A, {shared.only_after} only in B"


def _token(result: MemoryDiff, place: int) -> str:
    """The text of a token of A, or its id, and the text of B's token if it is another."""
    ours, theirs = (memory.provenance.demonstrations.token_ids[place] for memory in (result.before, result.after))
    shown = str(ours) if result.tokens is None else repr(result.tokens[place])
    return shown if ours == theirs else f"{shown} (another token in B)"


def _share(value: float | None) -> str:
    return "from zero" if value is None else f"{value:.3%}"


def _json(result: MemoryDiff) -> dict[str, Any]:
    """The report as JSON values."""
    from dataclasses import asdict

    tensors, ids = result.tensors, result.before.provenance.demonstrations.token_ids
    texts = result.tokens or [None] * len(ids)

    def changed(change: Change) -> dict[str, float | None]:
        return {"keys": change.keys, "values": change.values}

    return {
        **{
            which: {"file": memory.name, "iteration": memory.iterations[-1], "sha256": memory.sha256}
            for which, memory in (("a", result.before), ("b", result.after))
        },
        "provenance": {name: {"a": pair[0], "b": pair[1]} for name, pair in result.provenance.items()},
        "model_differences": list(result.model),
        "demonstrations": asdict(result.demonstrations),
        "not_compared": list(result.not_compared),
        "change": None if tensors is None else changed(tensors.whole),
        "layers": [{"layer": n, **changed(each)} for n, each in (tensors.layers if tensors else {}).items()],
        "tokens": [
            {"token": place, "id": ids[place], "text": texts[place], **changed(each)}
            for place, each in enumerate(tensors.tokens if tensors else ())
        ],
        "labels": None if result.labels is None else label_json(result.labels),
    }
