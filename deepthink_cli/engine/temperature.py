"""Llama 4's attention temperature, which its layers without rotary positions compute from a token's slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deepthink_cli.engine.reach import Reach


def has_temperature(module: Any) -> bool:
    """Whether an attention module multiplies queries by a factor that depends on their slot."""
    return getattr(module, "attn_temperature_tuning", False) and not getattr(module, "use_rope", True)


def by_slot(module: Any, query_1HTD: Tensor, reaches: Sequence[Reach]) -> Tensor:
    """The queries with the factors of their slots instead of those of their places in a packed pass."""
    slots_T = torch.tensor([slot for reach in reaches for slot in reach.slots()], device=query_1HTD.device)
    right_T, wrong_T = _factors(module, slots_T), _factors(module, torch.arange(len(slots_T), device=slots_T.device))
    return query_1HTD * (right_T / wrong_T)[:, None].to(query_1HTD.dtype)


def _factors(module: Any, slots_T: Tensor) -> Tensor:
    steps_T = torch.floor((slots_T + 1.0) / module.floor_scale)
    return torch.log1p(steps_T) * float(module.attn_scale) + 1.0
