"""The options of `deepthink tune`, and the settings that it chooses from, simplest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, field_validator

from deepthink_cli.calibration.registry import NONE, calibrations
from deepthink_cli.method import ETAS, ITERATIONS, POSITIONS, Eta, GateOptions, Method, Positions
from deepthink_cli.options import DATA, METHOD, Flag
from deepthink_cli.selection.options import SEED, SHOTS
from deepthink_cli.updates.registry import values_of


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
            "Corrections of the scores to try beside none. Default: batch and fitted.",
            "NAME,...",
            complete="all_calibrations",
            default=False,
        ),
    ] = (NONE, "batch", "fitted")
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

    budget: Annotated[
        str | None,
        Field(pattern=r"^[1-9][0-9]{0,6}[smh]$"),
        Flag(
            DATA,
            "Try only as many readings as fit this time, by a timed probe. Default: all.",
            "TIME",
            hint="a time in seconds, minutes or hours, as in 90s, 10m or 2h",
            variable=False,
        ),
    ] = None

    @field_validator("positions", "demos_by", mode="before")
    @classmethod
    def _names(cls, text: Any) -> Any:
        names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
        return tuple(dict.fromkeys(names))

    @field_validator("calibrate", mode="before")
    @classmethod
    def _calibrations(cls, text: Any) -> Any:
        names = calibrations(text, labelled=True) if isinstance(text, str) else text
        return tuple(dict.fromkeys((NONE, *names)))

    @property
    def seconds(self) -> float | None:
        """The budget in seconds; None without one."""
        return None if self.budget is None else int(self.budget[:-1]) * {"s": 1, "m": 60, "h": 3600}[self.budget[-1]]

    @property
    def methods(self) -> tuple[Method, ...]:
        """Every gate with every kind of positions."""
        return tuple(Method(self.iterations, gate, positions) for positions in self.positions for gate in self.gates)


@dataclass(frozen=True)
class Setting:
    """A way to label inputs: the method of the memory, and the correction of its scores.

    `selection` names the method that chooses the demonstrations; None if they are all rows. `place` is the index of its
    scores: selection, update rule with positions, and T - 1.
    """

    method: Method
    calibration: str
    selection: str | None
    place: tuple[int, int, int]

    @property
    def family(self) -> tuple[Any, ...]:
        """What settings that differ only in the number of readings share, if that is more than one."""
        return (self.selection, self.calibration, self.place[1] if self.method.iterations > 1 else None)

    def as_json(self) -> dict[str, Any]:
        """The setting as JSON values; what makes no difference at T = 1 is null there."""
        thinks = self.method.iterations > 1
        values = values_of(self.method.update)
        return {
            "iterations": self.method.iterations,
            **(values if thinks else dict.fromkeys(values)),
            "positions": self.method.positions if thinks else None,
            "calibration": self.calibration,
            "selection": self.selection,
        }

    def __str__(self) -> str:
        chosen = [f"{self.selection} demonstrations"] if self.selection else []
        calibrated = [] if self.calibration == NONE else [f"calibration {self.calibration}"]
        if self.method.iterations == 1:
            return ", ".join(["plain in-context learning (T = 1)", *chosen, *calibrated])
        return ", ".join([f"T = {self.method.iterations}", self.trajectory, *chosen, *calibrated])

    @property
    def trajectory(self) -> str:
        """The update rule and the positions of the readings."""
        return f"{self.method.update}, {self.method.positions}"


@dataclass(frozen=True)
class Grid:
    """Every iteration of every method, with every calibration and every selection of demonstrations.

    All methods have the same number of readings. The first calibration is `none`, and the first selection that of plain
    in-context learning.
    """

    methods: tuple[Method, ...]
    calibrations: tuple[str, ...] = (NONE,)
    selections: tuple[str | None, ...] = (None,)

    @property
    def iterations(self) -> int:
        """The number of readings."""
        return self.methods[0].iterations

    def up_to(self, iterations: int) -> Grid:
        """The same settings with at most so many readings."""
        return replace(self, methods=tuple(replace(method, iterations=iterations) for method in self.methods))

    @cached_property
    def settings(self) -> list[Setting]:
        """All settings, those with fewer readings first, then by calibration; the first is plain in-context learning.

        At T = 1 all methods are the same setting.
        """
        return [
            Setting(replace(method, iterations=t), calibration, selection, (chosen, number, t - 1))
            for t in range(1, self.iterations + 1)
            for calibration in self.calibrations
            for chosen, selection in enumerate(self.selections)
            for number, method in enumerate(self.methods if t > 1 else self.methods[:1])
        ]


def best_of_families(settings: Sequence[Setting], right: Sequence[int]) -> list[int]:
    """The best setting of every family, by the number of rows that it labels correctly; the first of equals.

    Plain in-context learning comes first, the others by that number.
    """
    best: dict[tuple[Any, ...], int] = {}
    for number, setting in enumerate(settings):
        if setting.family not in best or right[number] > right[best[setting.family]]:
            best[setting.family] = number
    plain, *others = best.values()
    return [plain, *sorted(others, key=lambda number: -right[number])]
