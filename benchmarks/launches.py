"""How many operations a pass starts in a layer, whatever the lengths of its rows: counted, not timed, without a GPU.

    python benchmarks/launches.py

A network of three layers scores `--rows` queries after a memory, of one length and of many. Every operation that torch
dispatches in the second layer counts, views included; transformers' own forward pass stands beside. On a GPU the tensors
are fake: shapes without data, on a device that need not exist. Also counts the copies between processor and GPU of the
whole pass. Prints a Markdown table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig

CONFIG = AutoConfig.for_model(
    "llama",
    vocab_size=500,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=96,
    max_position_embeddings=4096,
)
L = 128  # tokens of the memory
CANDIDATES = {1: ((5,), (6,), (7,)), 2: ((5, 6), (7, 8), (9, 5))}
DEVICES = {"cpu": torch.float32, "cuda": torch.bfloat16}


@dataclass(frozen=True)
class Counts:
    """Operations that a pass starts in a layer, and the copies of the whole pass to and from the GPU."""

    layer: int
    to_device: int
    from_device: int


class Counting(TorchDispatchMode):
    """Counts operations, and those that copy from one device to another."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.copies = 0, {"cpu": 0, "cuda": 0}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.started += 1
        given = [each for each in args[:1] if isinstance(each, torch.Tensor)]
        if given and isinstance(found, torch.Tensor) and found.device.type != given[0].device.type:
            self.copies[found.device.type] += 1
        return found
