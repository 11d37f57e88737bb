"""How fast a device multiplies matrices, from which the time of a model whose weights are elsewhere is computed."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a plan is refused without torch
    import torch

_WIDTH = 1024  # of the matrices; models' own are of about this size or larger
_SECONDS = 0.3


@cache
def product_speed(device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of products of square matrices, measured for a third of a second: 2 n^3 operations a product."""
    import torch

    left, right = (torch.ones(_WIDTH, _WIDTH, device=device, dtype=dtype) for _ in range(2))
    (left @ right).sum().item()  # the first product loads libraries
    products, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < _SECONDS:
        for _ in range(4):
            result = left @ right
        result.sum().item()  # waits for the device
        products += 4
    return products * 2 * _WIDTH**3 / elapsed / 1e12
