"""The options of `deepthink tune`, and their validation."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, field_validator

from deepthink_cli.calibration.registry import NONE, calibrations
from deepthink_cli.method import ETAS, ITERATIONS, POSITIONS, Eta, GateOptions, Method, Positions
from deepthink_cli.options import DATA, METHOD, Flag
from deepthink_cli.selection.options import SEED, SHOTS


class TuneOptions(GateOptions):
    """Options of `deepthink tune`: its grid of settings, and how it divides the rows into folds.

    `shots` demonstrations are chosen by each method of `demos_by`; all rows are read if it is None.
    """

    iterations: Annotated[int, Field(ge=1), replace(ITERATIONS, help="Readings; each number up to T is tried.")] = 15
    etas: Annotated[tuple[Eta, ...], ETAS] = (0.01, 0.1)
    positions: Annotated[
        tuple[Positions, ...],
        replace(
            POSITIONS,
            help="Positions of readings after the first: continued, restarted, or both separated by a comma.",
            metavar="WHICH,...",
        ),
    ] = ("continued",)
    calibrate: Annotated[
        tuple[str, ...],
        Flag(
            METHOD,
            "Corrections of the scores to try beside none. Default: batch.",
            "NAME,...",
            complete="calibrations",
            default=False,
        ),
    ] = (NONE, "batch")
    folds: Annotated[
        str,
        Field(pattern=r"^(loo|[0-9]{1,6})$"),
        Flag(
            DATA,
            "Folds, 3 or more; loo for as many as rows.",
            "K|loo",
            hint="a number of folds, 3 or more, or loo for as many as rows",
            variable=False,
        ),
    ] = "5"
    seed: Annotated[
        int, Field(ge=0), replace(SEED, help="Seed of the folds and of the order of the rows.", default=True)
    ] = 0
    shots: Annotated[
        int | None,
        Field(ge=1),
        replace(SHOTS, help="Choose K of the rows as demonstrations. Default: read all.", metavar="K"),
    ] = None
    demos_by: Annotated[
        tuple[str, ...],
        Flag(
            DATA,
            "Methods that choose the K demonstrations (deepthink select --list), to try beside random.",
            "NAME,...",
            complete="several_methods",
            default=False,
        ),
    ] = ()

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
