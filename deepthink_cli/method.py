"""The method of section 3.1 as one value: how often, by which rule, and at which positions a model reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import Gate

Positions = Literal["continued", "restarted"]


@dataclass(frozen=True)
class Method:
    """T readings; `update` moves the memory after every reading but the first (Eq. 4).

    `positions` places the readings after the first behind the history (`continued`, at L to 2L - 1, as in the
    official code) or in its place (`restarted`, at 0 to L - 1).
    """

    iterations: int = 5
    update: UpdateRule = field(default_factory=Gate)
    positions: Positions = "continued"

    def start(self, length: int) -> int:
        """The position of the first token of a reading after the first, for L = `length` tokens."""
        return length if self.positions == "continued" else 0
