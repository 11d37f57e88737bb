"""The options of `deepthink tune`, and their validation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from deepthink_cli.calibration.registry import NONE, calibrations
from deepthink_cli.method import GateOptions, Method, Positions


class TuneOptions(GateOptions):
    """Options of `deepthink tune`: its grid of settings, and how it divides the rows into folds.

    `shots` demonstrations are chosen by each method of `demos_by`; all rows are read if it is None.
    """

    iterations: int = Field(15, ge=1)
    etas: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.01, 0.1)
    positions: tuple[Positions, ...] = ("continued",)
    calibrate: tuple[str, ...] = (NONE, "batch")
    folds: str = Field("5", pattern=r"^(loo|[0-9]{1,6})$")
    seed: int = Field(0, ge=0)
    shots: int | None = Field(None, ge=1)
    demos_by: tuple[str, ...] = ()

    @field_validator("positions", "demos_by", mode="before")
    @classmethod
    def _names(cls, text: Any) -> Any:
        names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
        return tuple(dict.fromkeys(names))

    @field_validator("calibrate", mode="before")
    @classmethod
    def _calibrations(cls, text: Any) -> Any:
        names = calibrations(text) if isinstance(text, str) else text
        return tuple(dict.fromkeys((NONE, *names)))

    @property
    def methods(self) -> tuple[Method, ...]:
        """Every gate with every kind of positions."""
        return tuple(Method(self.iterations, gate, positions) for positions in self.positions for gate in self.gates)
