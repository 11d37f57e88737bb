"""The method of section 3.1 as one value: the number of readings, the update rule and the positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from deepthink_cli.options import METHOD, Flag, Options, chosen_iterations
from deepthink_cli.updates import GATE, RULES, Gate, RuleText, UpdateRule, parse_rule

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

    def __post_init__(self) -> None:
        MethodOptions.checked(iterations=self.iterations, positions=self.positions)

    def start(self, length: int) -> int:
        """The position of the first token of a reading after the first, for L = `length` tokens."""
        return length if self.positions == "continued" else 0


ITERATIONS = Flag(
    METHOD,
    "Readings of the demonstrations; 1 is plain in-context learning.",
    "T",
    short="-T",
    hint="T counts readings: a whole number, 1 (plain in-context learning) or more",
)
POSITIONS = Flag(
    METHOD,
    "Positions of readings after the first: after the memory (continued) or the same again (restarted).",
    hint="use continued or restarted",
)


class MethodOptions(Options):
    """Options of the method: T, eta and related ones (section 3.1 of the paper)."""

    iterations: Annotated[int, Field(ge=1), ITERATIONS] = 5
    eta: Annotated[
        float,
        Field(gt=0, le=1),
        Flag(
            METHOD,
            "Gate: how far each reading moves the memory, in (0, 1].",
            "ETA",
            hint="the gate is a number in (0, 1]; the paper uses 0.01",
        ),
    ] = 0.01
    momentum: Annotated[
        float,
        Field(ge=0, lt=1),
        Flag(
            METHOD,
            "Momentum: 0 as in the paper, 0.9 as in the official code.",
            "BETA",
            hint="a number in [0, 1); 0 is the paper, 0.9 the official code",
        ),
    ] = 0.0
    positions: Annotated[Positions, POSITIONS] = "continued"
    keep: Annotated[
        str,
        Field(pattern=r"^(last|all|\s*\d{1,6}\s*(,\s*\d{1,6}\s*)*)$"),
        Flag(
            METHOD,
            "Iterations to store: last, all, or numbers as in 1,3,5.",
            "WHICH",
            hint="give last, all, or iterations as in 1,3,5",
        ),
    ] = "last"
    update: Annotated[
        RuleText,
        Flag(
            METHOD,
            f"How a reading changes the memory, with --eta: {', '.join(RULES)} (docs/think.md). Default: gate, as in "
            "the paper.",
            "RULE[:PARAMETER=VALUE,...]",
            default=False,
        ),
    ] = GATE

    @property
    def method(self) -> Method:
        """The method that these options describe."""
        return Method(self.iterations, parse_rule(self.update, Gate(self.eta, self.momentum)), self.positions)

    @property
    def kept(self) -> tuple[int, ...]:
        """The iterations whose memory is stored, in order; raises InputError for one beyond T."""
        if self.keep == "last":
            return (self.iterations,)
        return chosen_iterations("keep", self.keep, self.iterations)


ETAS = Flag(
    METHOD,
    "Gate in (0, 1], or several separated by commas.",
    "ETA,...",
    name="eta",
    hint="gates are numbers in (0, 1], as in 0.01 or 0.001,0.01,0.1",
)
Eta = Annotated[float, Field(gt=0, le=1)]


class GateOptions(Options):
    """A grid of gates."""

    etas: Annotated[tuple[Eta, ...], ETAS] = (0.01,)
    momentums: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], ...],
        Flag(
            METHOD,
            "Momentum: 0 as in the paper; or several, as in 0,0.9.",
            "BETA,...",
            name="momentum",
            hint="numbers in [0, 1), as in 0 or 0,0.9",
        ),
    ] = (0.0,)

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
