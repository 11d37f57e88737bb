"""The method of section 3.1 as one value: the number of readings, the update rule and the positions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from deepthink_cli.options import Options, chosen_iterations
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import Gate
from deepthink_cli.updates.registry import GATE, RuleText, parse_rule

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


class MethodOptions(Options):
    """Options of the method: T, eta and related ones (section 3.1 of the paper)."""

    iterations: int = Field(5, ge=1)
    eta: float = Field(0.01, gt=0, le=1)
    momentum: float = Field(0.0, ge=0, lt=1)
    positions: Positions = "continued"
    keep: str = "last"
    update: RuleText = GATE

    @field_validator("keep")
    @classmethod
    def _known(cls, keep: str) -> str:
        if keep not in ("last", "all") and not all(re.fullmatch(r"\s*\d{1,6}\s*", part) for part in keep.split(",")):
            raise ValueError("say last, all, or iterations as in 1,3,5")
        return keep

    @property
    def method(self) -> Method:
        """The method that these options describe."""
        return Method(self.iterations, parse_rule(self.update, Gate(self.eta, self.momentum)), self.positions)

    @property
    def kept(self) -> tuple[int, ...]:
        """The iterations whose memory is stored, in order; raises InputError for one beyond T."""
        if self.keep == "last":
            return (self.iterations,)
        return chosen_iterations("--keep", self.keep, self.iterations)


class GateOptions(Options):
    """A grid of gates."""

    etas: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.01,)
    momentums: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.0,)

    @field_validator("etas", "momentums", mode="before")
    @classmethod
    def _several(cls, text: Any) -> Any:
        return text.split(",") if isinstance(text, str) else text

    @field_validator("etas", "momentums")
    @classmethod
    def _distinct(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(dict.fromkeys(values))

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Every eta with every momentum."""
        return tuple(Gate(eta, momentum) for eta in self.etas for momentum in self.momentums)
