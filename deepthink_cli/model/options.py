"""The options of a model: its name, dtype, device and engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from deepthink_cli.errors import InputError, option
from deepthink_cli.model.files import kind_of
from deepthink_cli.options import MODEL, Flag, Options

if TYPE_CHECKING:  # options are shown in help pages, which are instant
    import torch

POCKET = "pocket"
_HUB_FILE = re.compile(r"([^./~][^/]*/[^/]+)/(.+)")  # a file of a hub repository
TOY = f"{POCKET} is a toy, which knows three tasks"
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantize = Literal["8bit", "4bit"]
MODEL_NAMES = "Hub id, local directory, GGUF file, of the hub as ID/FILE.gguf, or pocket, the built-in toy model"
Offline = Annotated[bool, Flag(MODEL, "Use only files on this machine; no downloads.")]


class ModelOptions(Options):
    """Which model, in which dtype, on which device, by which engine.

    `gguf` is a file of the model's repository that holds the whole model; `ID/FILE.gguf` names both.
    """

    model: Annotated[
        str,
        Field(min_length=1),
        Flag(MODEL, f"{MODEL_NAMES}. Default: the memory's model.", "MODEL", short="-m", default=False),
    ] = POCKET
    revision: Annotated[str | None, Flag(MODEL, "Branch, tag or commit of a hub model.", "REV")] = None
    gguf: Annotated[str | None, Field(min_length=1)] = None
    dtype: Annotated[
        Dtype,
        Flag(
            MODEL,
            "Compute dtype; auto is the memory's dtype; for a new memory float32 on a CPU, the checkpoint's dtype on a "
            "GPU.",
            hint="use auto, float32, bfloat16 or float16",
        ),
    ] = "auto"
    device: Annotated[
        str,
        Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$"),
        Flag(MODEL, "auto, cpu, cuda, cuda:N or mps.", "DEVICE", hint="use auto, cpu, cuda, cuda:N or mps"),
    ] = "auto"
    device_map: Annotated[
        Literal["auto"] | None,
        Flag(
            MODEL, "Spread the model over all GPUs; each layer's memory stays on its layer's device.", hint="use auto"
        ),
    ] = None
    quantize: Annotated[
        Quantize | None, Flag(MODEL, "Load the weights in 8 or 4 bits (needs bitsandbytes).", hint="use 8bit or 4bit")
    ] = None
    engine: Annotated[
        str,
        Flag(
            MODEL,
            "Score batches packed (without padding), padded, or by vLLM; auto is packed if a probe gives equal scores.",
            names="deepthink_cli.engine.registry:known_engines",
        ),
    ] = "auto"
    offline: Offline = False
    trust_remote_code: Annotated[bool, Flag(MODEL, "Run Python code that comes with the model.", variable=False)] = (
        False
    )
    batch_tokens: Annotated[
        int | None,
        Field(ge=1),
        Flag(
            MODEL,
            "Tokens per scoring pass. Default: chosen for the device. A longer input runs in a pass of its own.",
            "TOKENS",
            hint="a number of tokens, 1 or more; omit it to have it chosen",
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _named_with_its_file(cls, values: Any) -> Any:
        found = _HUB_FILE.fullmatch(str(values.get("model"))) if isinstance(values, dict) else None
        if found is None or kind_of(found[2]) is None or values.get("gguf") is not None or Path(found[0]).exists():
            return values
        return {**values, "model": found[1], "gguf": found[2]}

    def recorded(self) -> dict[str, Any]:
        """The options that scores depend on, as JSON values."""
        return self.model_dump(mode="json", exclude={"offline", "trust_remote_code"})

    @property
    def name(self) -> str:
        """The model in messages."""
        return self.model


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto is CUDA, then MPS, then the CPU. Raises InputError if it is not available."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        reason = f"torch sees {torch.cuda.device_count()} CUDA devices; use {option('device')} auto"
        raise InputError.of("device", name, reason)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError.of("device", name, f"torch sees no MPS device; use {option('device')} auto")
    return device
