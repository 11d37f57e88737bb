"""The exporters of this plugin, which are named without importing torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from deepthink_cli.export import Exporter
from deepthink_cli.options import OUTPUT, Flag, Options


class StateOptions(Options):
    """The saved state of llama.cpp."""

    state: Annotated[
        Path,
        Flag(
            OUTPUT,
            "State that llama.cpp saved after the memory's tokens.",
            "FILE",
            hint="FILE, a state that your llama.cpp saved after the memory's tokens: docs/elsewhere.md shows how",
        ),
    ]


_HERE = "deepthink_cli.plugins.exports"
PEFT = Exporter(
    f"{_HERE}.peft:export",
    "prefix adapter",
    "a folder with a prefix adapter",
    "https://huggingface.co/docs/peft",
    is_folder=True,
)
LLAMA_CPP = Exporter(
    f"{_HERE}.llama_cpp:export",
    "state of llama.cpp",
    "a saved state of a sequence, with the memory in it",
    "https://github.com/ggml-org/llama.cpp",
    options=StateOptions,
    takes_model=True,
)
MLX = Exporter(
    f"{_HERE}.mlx:export",
    "prompt cache of mlx-lm",
    "a prompt cache of mlx-lm, for Apple's machines",
    "https://github.com/ml-explore/mlx-lm",
    takes_model=True,
)
