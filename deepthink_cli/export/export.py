"""Write a memory for another program: the workflow of `deepthink export`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.format import one_iteration, read_header
from deepthink_cli.events import Tell, Warn, silent
from deepthink_cli.export.registry import Export, Exporter, Written
from deepthink_cli.io.atomic import check_folder
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import Options
from deepthink_cli.outputs import Paths, check_apart

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


def check_export_apart(exporter: Exporter, output: Path, read: Paths) -> None:
    """Raise InputError unless the exporter can write to `output` without overwriting what is read or runs."""
    in_folder = exporter.files and check_folder(output, exporter.files).is_dir()
    check_apart(output / exporter.files[0] if in_folder else output, read)


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
    header = read_header(path)
    chosen = one_iteration(header, iteration)
    from deepthink_cli.artifact.files import load_memory

    memory = load_memory(path, chosen)
    written = exporter(Export(memory, header, output, tell, options, model))
    if (stored := header.metadata.calibrated) is None:
        return memory, written
    text = f"{path} stores a correction, which other programs do not apply to scores: their labels may be others"
    tell(Warn(f"{text} than those of deepthink predict"))
    return memory, replace(written, values={**written.values, "calibrated": stored.at(memory.iteration)})
