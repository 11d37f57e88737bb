"""Memories for other programs: the exporters by name, as `export --to` takes them, and the workflow of `export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.events import Tell, Warn, silent
from deepthink_cli.options import Options
from deepthink_cli.registry import Registry, instance_of, loaded

if TYPE_CHECKING:  # exporters are listed at once, without torch
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.options import ModelOptions
    from deepthink_cli.outputs import Paths


@dataclass(frozen=True, eq=False)
class Export:
    """One iteration of a memory that is to be written to `output`.

    `header` is the header of the memory's file. `options` are the exporter's own options, or None. `model` are the
    options of the model, if the exporter takes one (`Exporter.takes_model`).
    """

    memory: Memory
    header: Header
    output: Path
    tell: Tell = silent
    options: Any = None
    model: ModelOptions | None = None


@dataclass(frozen=True)
class Written:
    """What is said of an export beside its size: values for `--json`, and lines of text."""

    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Exporter:
    """A form in which another program reads memories.

    `write` is a function, or the place of one (`module:function`). It writes `Export.output`, complete or not at all,
    and raises InputError for a memory that the form cannot hold. `form` names the form in messages. `files` are the
    files that the written folder may have; without `files`, the output is a file. `options` are the exporter's own
    options. An exporter that does not take a model refuses `--model`.
    """

    write: Callable[[Export], Written | None] | str
    form: str
    summary: str
    source: str
    files: tuple[str, ...] = ()
    options: type[Options] | None = None
    takes_model: bool = False

    def __call__(self, export: Export) -> Written:
        """Write the memory; raises as `write` does."""
        return loaded(self.write)(export) or Written()


EXPORTERS: Registry[Exporter] = Registry("exporters", {}, instance_of(Exporter))


def check_export_apart(exporter: Exporter, output: Path, read: Paths) -> None:
    """Raise InputError unless the exporter can write to `output` without overwriting what is read or runs."""
    from deepthink_cli.io.atomic import check_folder
    from deepthink_cli.outputs import check_apart

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
    return memory, replace(written, values={**written.values, "calibrated": stored.at(memory.iteration)})
