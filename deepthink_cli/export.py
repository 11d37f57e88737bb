"""Memories for other programs: the exporters by name, as `export --to` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.events import Tell, silent
from deepthink_cli.options import Options
from deepthink_cli.registry import Registry, instance_of, loaded

if TYPE_CHECKING:  # exporters are listed at once, without torch
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.options import ModelOptions


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
    and raises InputError for a memory that the form cannot hold. `form` names the form in messages. An exporter that
    `is_folder` writes a new folder, others a file. `options` are the exporter's own options. An exporter that does not
    take a model refuses `--model`.
    """

    write: Callable[[Export], Written | None] | str
    form: str
    summary: str
    source: str
    is_folder: bool = False
    options: type[Options] | None = None
    takes_model: bool = False

    def __call__(self, export: Export) -> Written:
        """Write the memory; raises as `write` does."""
        return loaded(self.write)(export) or Written()


EXPORTERS: Registry[Exporter] = Registry("exporters", {}, instance_of(Exporter))
