"""`deepthink export`: write a memory for another program."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, report, write_json
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import Problem, Problems
from deepthink_cli.events import Tell, Warn, silent
from deepthink_cli.export import EXPORTERS, Export, Exporter, Written
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import METHOD, OUTPUT, Flag, Joined, Options, joined, own_options

_OWN = {f"--to {name}": exporter.options for name, exporter in EXPORTERS.items()}
if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

    ExporterOptions = Joined
else:
    ExporterOptions = joined("ExporterOptions", _OWN)

_SUMMARIES = [f"{name}: {EXPORTERS.summary(name)}." for name in EXPORTERS.own]
To = Annotated[
    str,
    Flag(
        OUTPUT,
        " ".join([*_SUMMARIES, *([f"Installed: {', '.join(EXPORTERS.added)}."] if EXPORTERS.added else [])]),
        f"<{'|'.join(EXPORTERS)}>",
        names=lambda: EXPORTERS,
        variable=False,
    ),
]
Output = Annotated[Path, Flag(OUTPUT, "The adapter's folder, or a file.", "PATH", short="-o", variable=False)]
OneIteration = Annotated[str, Flag(METHOD, "Which kept iteration to write: a number, or last.", "T")]


@about("export mem.safetensors --to peft -o adapter", first="to output at state json")
@grouped
def export(
    context: typer.Context,
    memory: MemoryFile,
    to: To,
    output: Output,
    at: OneIteration = "last",
    *,
    own: Given[ExporterOptions],
    model: Annotated[Given[ModelOptions], Without("batch_tokens")],
    common: CommonArguments,
) -> None:
    """Write a memory in a form that other programs read.

    A model is only loaded for llama.cpp, and only if the memory does not keep T = 1, with which the state is compared.
    For mlx-lm its configuration and tokenizer are read, and --dtype is that of the written keys and values.
    """
    from deepthink_cli.io.atomic import check_new_folder
    from deepthink_cli.outputs import check_apart, check_folder_apart

    model, problems, exporter = for_memory(context, model), Problems(), EXPORTERS[to]
    options = problems.tried(model.checked)
    given = problems.tried(own_options, exporter.options, own.changed, f"--to {to}", _OWN)
    if model.model is not None and not exporter.takes_model:
        takers = [name for name, each in EXPORTERS.items() if each.takes_model]
        problems.add(Problem.of("model", model.model, f"only with --to {' or '.join(takers)}; omit it"))
    files = [value for value in own.changed.values() if isinstance(value, Path)]
    with problems.collected():
        if exporter.is_folder:
            check_new_folder(output)
            check_folder_apart(output, ())
        else:
            check_apart(output, read_by(memory, *files, model=model.model, config=common.config))
    problems.raise_any()
    with Show(common) as tell:
        exported, written = export_memory(exporter, memory, output, at, tell, options=given, model=options)
    made_by, length = exported.origin.model.id, exported.length
    if common.as_json:
        size = {"tokens": length, "layers": len(exported.keys), "model": made_by}
        write_json({"file": str(output), "format": to, "iteration": exported.iteration, **size, **written.values})
        return
    about = f"{exporter.form} of {length} tokens, T = {exported.iteration}, for {made_by}"
    report(f"wrote {output}: {about}", *written.lines)


def export_memory(
    exporter: Exporter,
    path: Path,
    output: Path,
    iteration: str = "last",
    tell: Tell = silent,
    *,
    options: Options | None = None,
    model: ModelOptions | None = None,
) -> tuple[Memory, Written]:
    """Write one iteration of a memory file; returns it with the exporter's result. Raises as the exporter does.

    Warns of a correction that the memory stores: other programs score without it.
    """
    from deepthink_cli.artifact.format import one_iteration, read_header

    header = read_header(path)
    chosen = one_iteration(header, iteration)
    from deepthink_cli.artifact.files import load_memory

    memory = load_memory(path, chosen)
    written = exporter(Export(memory, header, output, tell, options, model))
    if (stored := header.metadata.calibrated) is None:
        return memory, written
    text = f"{path} stores a correction, which other programs do not apply to scores: their labels may be others"
    tell(Warn(f"{text} than those of deepthink predict"))
    values = asdict(replace(stored.of([chosen]), held_out=None))
    values |= {name: (values[name] or {}).get(str(chosen)) for name in ("bias", "head")}
    correction = {name: value for name, value in values.items() if value is not None or name == "source"}
    return memory, replace(written, values={**written.values, "calibrated": correction})
