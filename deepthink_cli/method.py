"""The method of section 3.1 as one value: the number of readings, the update rule and the positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import Gate

Positions = Literal["continued", "restarted"]


@dataclass(frozen=True)
class Method:
    """T readings; `update` moves the memory after every reading but the first (Eq. 4).

    `positions` of the readings after the first are L to 2L - 1 (`continued`, as in the official code) or again
    0 to L - 1 (`restarted`).
    """

    iterations: int = 5
    update: UpdateRule = field(default_factory=Gate)
    positions: Positions = "continued"

    def start(self, length: int) -> int:
        """The position of the first token of a reading after the first, for L = `length` tokens."""
        return length if self.positions == "continued" else 0
