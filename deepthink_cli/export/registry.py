"""The exporters by name, as `export --to` takes them: forms in which other programs read a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deepthink_cli.events import Tell, silent
from deepthink_cli.registry import Registry, instance_of, loaded

if TYPE_CHECKING:  # memories are listed without torch
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.options import ModelOptions

Weights = Literal["f32", "f16", "bf16", "quantized"]


@dataclass(frozen=True, eq=False)
class Export:
    """One iteration of a memory that is to be written to `output`, and the options that were given.

    `header` is that of the memory's file. Options are None if they were not given; those that the exporter does not
    take are refused before.
    """

    memory: Memory
    header: Header
    output: Path
    tell: Tell = silent
    state: Path | None = None
    weights: Weights | None = None
    model: ModelOptions | None = None


@dataclass(frozen=True)
class Written:
    """What is said of an export beside its size: values for `--json`, and lines of text."""

    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Exporter:
    """A form in which another program reads memories.

    `write` is a function, or where it is found (`module:function`); it writes `Export.output`, complete or not at all,
    and raises InputError for a memory that the form cannot hold. `form` says what is written, in the line that reports
    it. `files` names the files that the written folder may have; without any, it is one file. `takes` names the fields
    of `Export` that it uses of `state`, `weights` and `model`; `needs` those that must be given, with what they are.
    """

    write: Callable[[Export], Written | None] | str
    form: str
    summary: str
    source: str
    files: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, export: Export) -> Written:
        """Write the memory; raises as `write` does."""
        return loaded(self.write)(export) or Written()


_HERE = "deepthink_cli.export"
_SAVED = "saved after the memory's tokens: docs/elsewhere.md shows how"
EXPORTERS: Registry[Exporter] = Registry(
    "exporters",
    {
        "peft": Exporter(
            f"{_HERE}.peft:export",
            "prefix adapter",
            "a folder with a prefix adapter",
            "https://huggingface.co/docs/peft",
            files=("adapter_config.json", "adapter_model.safetensors", "correction.json"),
        ),
        "llama.cpp": Exporter(
            f"{_HERE}.llama_cpp:export",
            "state of llama.cpp",
            "a saved state of a sequence, with the memory in it",
            "https://github.com/ggml-org/llama.cpp",
            takes=("state", "weights", "model"),
            needs={"state": f"FILE, a state that your llama.cpp {_SAVED}"},
        ),
        "mlx": Exporter(
            f"{_HERE}.mlx:export",
            "prompt cache of mlx-lm",
            "a prompt cache of mlx-lm, for Apple's machines",
            "https://github.com/ml-explore/mlx-lm",
            takes=("model",),
        ),
    },
    instance_of(Exporter),
)
