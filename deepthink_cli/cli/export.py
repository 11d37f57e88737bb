"""`deepthink export`: write a memory for another program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deepthink_cli.cli.console import report, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import METHOD, OUTPUT, CommonArguments, ModelArguments, for_memory, option
from deepthink_cli.cli.predict import MemoryFile
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.show import Show
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

PEFT, LLAMA_CPP = "peft", "llama.cpp"
To = Annotated[
    Literal["peft", "llama.cpp"],
    typer.Option(
        "--to",
        rich_help_panel=OUTPUT,
        help="peft: a folder with a prefix adapter. llama.cpp: a saved state of a sequence, with the memory in it.",
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="PATH", rich_help_panel=OUTPUT, help="The adapter's folder, or a file."),
]
OneIteration = Annotated[
    str, option("--iteration", panel=METHOD, metavar="T", help="Which kept iteration to write: a number, or last.")
]


@dataclass(frozen=True)
class StateArguments:
    """The saved state of llama.cpp, and the weights that it was computed with."""

    state: Annotated[
        Path | None,
        option("--state", panel=OUTPUT, metavar="FILE", help="State that llama.cpp saved after the memory's tokens."),
    ] = None
    weights: Annotated[
        Literal["f32", "f16", "bf16", "quantized"] | None,
        option(
            "--weights",
            panel=OUTPUT,
            help="Type of llama.cpp's weights, by which its keys may differ from the memory's model. Default: f32.",
        ),
    ] = None


@grouped
def export(
    context: typer.Context,
    memory: MemoryFile,
    to: To,
    output: Output,
    iteration: OneIteration = "last",
    *,
    state: StateArguments,
    model: Annotated[ModelArguments, Without("batch_tokens")],
    common: CommonArguments,
) -> None:
    """Write a memory for PEFT and transformers, or for llama.cpp.

    A model is only loaded for llama.cpp, and only if the memory does not keep T = 1, with which the state is compared.
    """
    from deepthink_cli.export.export import check_adapter_apart, export_llama_cpp, export_peft
    from deepthink_cli.outputs import check_apart

    model, problems = for_memory(context, model), Problems()
    options = problems.result(model.checked)
    problems.result(lambda: _check_options(to, state, model))
    reads = read_by(memory, state.state, model=model.model, adapter=model.adapter, config=common.config)
    problems.result(lambda: (check_adapter_apart if to == PEFT else check_apart)(output, reads))
    problems.raise_any()
    with Show(common) as tell:
        if to == PEFT:
            _report(to, export_peft(memory, output, iteration, tell), output, common, {})
            return
        assert state.state is not None
        written, compared = export_llama_cpp(
            memory, state.state, output, iteration, state.weights or "f32", options, tell
        )
    differences = {"keys": compared.keys, "values": compared.values, "tolerance": compared.tolerance}
    _report(to, written, output, common, {"state_differs_from_one_reading": differences})


def _check_options(to: str, state: StateArguments, model: ModelArguments) -> None:
    """Raise InputError for options of the other format, and for a missing state."""
    if to == PEFT:
        for name, value in (("--state", state.state), ("--weights", state.weights), ("-m", model.model)):
            if value is not None:
                raise InputError(f"{name} {value}: only with --to {LLAMA_CPP}; omit it")
    elif state.state is None:
        raise InputError(
            f"--to {LLAMA_CPP} needs --state FILE, a state that your llama.cpp saved after the memory's tokens: "
            "docs/elsewhere.md shows how"
        )


def _report(to: str, memory: Memory, output: Path, common: CommonArguments, more: dict[str, Any]) -> None:
    """Say what was written."""
    assert memory.provenance is not None
    model = memory.provenance.model.id
    if common.json:
        size = {"tokens": memory.length, "layers": len(memory.keys)}
        write_json({"file": str(output), "format": to, "iteration": memory.iteration, **size, "model": model, **more})
        return
    kind = "prefix adapter" if to == PEFT else "state of llama.cpp"
    report(f"wrote {output}: {kind} of {memory.length} tokens, T = {memory.iteration}, for {model}")
    for differences in more.values():
        report(
            f"the state's own keys differ from one reading by {differences['keys']:.1e} of their layer's largest, its "
            f"values by {differences['values']:.1e} (at most {differences['tolerance']:g})"
        )
