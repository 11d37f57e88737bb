"""The device that a model runs on."""

from __future__ import annotations

import torch

from deepthink_cli.errors import InputError, option


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto is CUDA, then MPS, then the CPU. Raises InputError if it is not available."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise InputError.of(
            "device", name, f"torch sees {torch.cuda.device_count()} CUDA devices; use {option('device')} auto"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError.of("device", name, f"torch sees no MPS device; use {option('device')} auto")
    return device
