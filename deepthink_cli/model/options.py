"""The options of a model: which one, in which dtype, on which device."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepthink_cli.options import Options

POCKET = "pocket"


Dtype = Literal["auto", "float32", "bfloat16", "float16"]


Quantize = Literal["8bit", "4bit"]


class ModelOptions(Options):
    """Which model, in which dtype, on which device, by which engine."""

    model: str = Field(POCKET, min_length=1)
    revision: str | None = None
    gguf: str | None = Field(None, min_length=1)
    adapter: str | None = Field(None, min_length=1)
    dtype: Dtype = "auto"
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    device_map: Literal["auto"] | None = None
    quantize: Quantize | None = None
    offline: bool = False
    trust_remote_code: bool = False
    batch_tokens: int | None = Field(None, ge=1)
    engine: str = "auto"
