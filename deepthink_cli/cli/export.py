"""`deepthink export`: write a memory for another program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.console import Show, report, write_json
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.export.registry import EXPORTERS, Weights, Written
from deepthink_cli.model.options import SCORING, ModelOptions
from deepthink_cli.options import METHOD, OUTPUT, Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


_SUMMARIES = [f"{name}: {EXPORTERS.summary(name)}." for name in EXPORTERS.own]
To = Annotated[
    str,
    Flag(
        OUTPUT,
        " ".join([*_SUMMARIES, *([f"Installed: {', '.join(EXPORTERS.added)}."] if EXPORTERS.added else [])]),
        f"<{'|'.join(EXPORTERS)}>",
        complete="exporters",
        closed=True,
        variable=False,
    ),
]
Output = Annotated[
    Path,
    Flag(OUTPUT, "The adapter's folder, or a file.", "PATH", short="-o", variable=False),
]
OneIteration = Annotated[str, Flag(METHOD, "Which kept iteration to write: a number, or last.", "T")]


class StateArguments(Options):
    """The saved state of llama.cpp, and the weights that it was computed with."""

    state: Annotated[
        Path | None,
        Flag(
            OUTPUT,
            "State that llama.cpp saved after the memory's tokens.",
            "FILE",
        ),
    ] = None
    weights: Annotated[
        Weights | None,
        Flag(
            OUTPUT,
            "Type of llama.cpp's weights, by which its keys may differ from the memory's model. Default: f32.",
        ),
    ] = None


@grouped
def export(
    context: typer.Context,
    memory: MemoryFile,
    to: To,
    output: Output,
    at: OneIteration = "last",
    *,
    state: StateArguments,
    model: Annotated[Given[ModelOptions], Without(*SCORING)],
    common: CommonArguments,
) -> None:
    """Write a memory for PEFT and transformers, for llama.cpp, or for mlx-lm.

    A model is only loaded for llama.cpp, and only if the memory does not keep T = 1, with which the state is compared.
    For mlx-lm its configuration and tokenizer are read, and --dtype is that of the written keys and values.
    """
    from deepthink_cli.export.export import check_export_apart, export_memory

    model, problems = for_memory(context, model), Problems()
    with problems.collected():
        options = model.checked()
    with problems.collected():
        _check_options(to, {"state": state.state, "weights": state.weights, "model": model.model})
    reads = read_by(memory, state.state, model=model.model, adapter=model.adapter, config=common.config)
    exporter = EXPORTERS[to]
    with problems.collected():
        check_export_apart(exporter, output, reads)
    problems.raise_any()
    with Show(common) as tell:
        exported, written = export_memory(
            exporter, memory, output, at, tell, state=state.state, weights=state.weights, model=options
        )
    _report(to, exported, output, common, written)


def _check_options(to: str, given: Mapping[str, object]) -> None:
    """Raise InputError for options that the exporter does not take, and for one that it needs."""
    exporter = EXPORTERS[to]
    for name, value in given.items():
        if value is not None and name not in exporter.takes:
            takers = [other for other, each in EXPORTERS.items() if name in each.takes]
            raise InputError.of(name, value, f"only with --to {' or '.join(takers)}; omit it")
    for name, what in exporter.needs.items():
        if given[name] is None:
            raise InputError(f"--to {to} needs {flag(name)} {what}")


def _report(to: str, memory: Memory, output: Path, common: CommonArguments, written: Written) -> None:
    """Say what was written."""
    assert memory.provenance is not None
    model = memory.provenance.model.id
    if common.as_json:
        size = {"tokens": memory.length, "layers": len(memory.keys), "model": model}
        write_json({"file": str(output), "format": to, "iteration": memory.iteration, **size, **written.values})
        return
    report(
        f"wrote {output}: {EXPORTERS[to].form} of {memory.length} tokens, T = {memory.iteration}, for {model}",
        *written.lines,
    )
