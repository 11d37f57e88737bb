"""The size of a model: from its configuration or, if it is a model of the paper that is not here, from a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from deepthink_cli.io.documents import read_document
from deepthink_cli.model.devices import choose_device
from deepthink_cli.model.footprint import parameter_count
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.options import ModelOptions
from deepthink_cli.runs.in_step import COPIES

TABLE = Path(__file__).parent / "models.yaml"
_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "8bit": 1.0, "4bit": 0.5}
_MEMORY_BYTES = 4  # a memory is float32


@dataclass(frozen=True)
class Size:
    """A model's parameters, the bytes of its weight files and of its loaded weights, and of a memory per token."""

    parameters: float
    file_bytes: float
    loaded_bytes: float
    token_bytes: float

    def memory_needed(self, tokens: float) -> float:
        """Bytes for the weights and for making one memory of so many tokens; where there are more, it is faster."""
        return self.loaded_bytes + COPIES * tokens * self.token_bytes


def size_of(spec: ModelSpec) -> Size | None:
    """The size of a model that was opened; None if its architecture cannot be built without weights."""
    count = parameter_count(spec.config)
    if count is None:
        return None
    files = sum(file.stat().st_size for file in spec.local_weights())
    stored = getattr(spec.config, "dtype", None)
    per_weight = getattr(stored, "itemsize", 4)
    loaded = _loaded(count, spec.options, spec.dtype.itemsize)
    return Size(count, files or count * per_weight, loaded, spec.memory_bytes(1))


def known_size(options: ModelOptions) -> Size | None:
    """The size of a model of the paper, by its id; None for another model."""
    table = _table()
    known = table.get(options.model, table.get(f"openai-community/{options.model}"))  # gpt2 alone is an id, too
    if known is None:
        return None
    stored = known["stored"]
    default = 4.0 if choose_device(options.device).type == "cpu" else stored
    loaded = _loaded(known["parameters"], options, _BYTES.get(options.dtype, default))
    return Size(known["parameters"], known["parameters"] * stored, loaded, _MEMORY_BYTES * known["width"])


def _loaded(parameters: float, options: ModelOptions, per_weight: float) -> float:
    return parameters * (per_weight if options.quantize is None else _BYTES[options.quantize])


@cache
def _table() -> dict[str, Any]:
    return dict(read_document(TABLE).values)
