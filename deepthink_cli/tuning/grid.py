"""The settings that `deepthink tune` chooses from, simplest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.method import Method
from deepthink_cli.updates.registry import values_of


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
