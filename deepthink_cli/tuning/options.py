"""The options of `deepthink tune`, and the settings from which it chooses, simplest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, field_validator

from deepthink_cli.calibration.registry import NONE, calibrations
from deepthink_cli.io.records import Natural
from deepthink_cli.method import ETAS, ITERATIONS, POSITIONS, Eta, GateOptions, Method, Positions
from deepthink_cli.options import DATA, METHOD, Flag, named_by
from deepthink_cli.registry import installed
from deepthink_cli.selection.options import SEED, SHOTS
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, technique_of
from deepthink_cli.updates import values_of


class TuneOptions(GateOptions):
    """Options of `deepthink tune`: its grid of settings, and its folds.

    Each method of `demos_by` chooses `shots` demonstrations; with None, all rows are read. `own` are values of the
    options of rivals.
    """

    techniques: Annotated[
        tuple[Annotated[str, named_by(technique_of)], ...],
        Flag(
            METHOD,
            f"Ways to make the memory, to try beside {DEEP_THINKING}{installed(TECHNIQUES)}.",
            "NAME,...",
            name="technique",
            default=False,
            variable=False,
        ),
    ] = (DEEP_THINKING,)
    iterations: Annotated[int, Field(ge=1), replace(ITERATIONS, help="Readings; each number up to T is tried.")] = 1
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
        tuple[str, ...] | None,
        Flag(
            METHOD,
            "Corrections of the scores to try beside none. Default: all that the rows allow.",
            "NAME,...",
            default=False,
        ),
    ] = None
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
    seed: Annotated[Natural, replace(SEED, help="Seed of the folds and of the order of the rows.", default=True)] = 0
    shots: Annotated[
        int | None,
        Field(ge=1),
        replace(SHOTS, help="Choose K of the rows as demonstrations. Default: read all.", metavar="K"),
    ] = None
    demos_by: Annotated[
        tuple[str, ...],
        Flag(
            DATA,
            "Methods that choose the K demonstrations (deepthink list selections), to try beside random.",
            "NAME,...",
            default=False,
        ),
    ] = ()

    budget: Annotated[
        str | None,
        Field(pattern=r"^[1-9][0-9]{0,6}[smh]$"),
        Flag(
            DATA,
            "Try only what fits this time, cheap settings first. Default: all.",
            "TIME",
            hint="a time in seconds, minutes or hours, as in 90s, 10m or 2h",
            variable=False,
        ),
    ] = None
    own: Mapping[str, Any] = {}

    @field_validator("positions", "demos_by", mode="before")
    @classmethod
    def _names(cls, text: Any) -> Any:
        names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
        return tuple(dict.fromkeys(names))

    @field_validator("techniques", mode="before")
    @classmethod
    def _techniques(cls, text: Any) -> Any:
        return tuple(dict.fromkeys((DEEP_THINKING, *cls._names(text))))

    @field_validator("calibrate", mode="before")
    @classmethod
    def _calibrations(cls, text: Any) -> Any:
        return calibrations(text, labelled=True) if isinstance(text, str) else text

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
    """A way to label inputs: the making of the memory, and the correction of its scores.

    `selection` names the method that chooses the demonstrations; None if all rows are read. `place` is the index of the
    setting's scores: selection, technique, update rule with positions, and T - 1.
    """

    technique: Technique
    method: Method
    calibration: str
    selection: str | None
    place: tuple[int, int, int, int]

    def as_json(self) -> dict[str, Any]:
        """The setting as JSON values; options without effect at T = 1 are null there."""
        thinks = self.method.iterations > 1
        values = values_of(self.method.update)
        return {
            "technique": self.technique.name,
            "iterations": self.method.iterations,
            **(values if thinks else dict.fromkeys(values)),
            "positions": self.method.positions if thinks else None,
            "calibration": self.calibration,
            "selection": self.selection,
        }

    def __str__(self) -> str:
        plain, readings = self.technique.name == DEEP_THINKING, self.method.iterations
        made = [] if plain else [self.technique.name]
        made += [f"T = {readings}", f"{self.method.update}, {self.method.positions}"]
        if readings == 1:
            made = ["plain in-context learning" if plain else f"{self.technique.name} (T = 1)"]
        chosen = [f"{self.selection} demonstrations"] if self.selection else []
        calibrated = [] if self.calibration == NONE else [f"calibration {self.calibration}"]
        return ", ".join([*made, *chosen, *calibrated])


def most_readings(technique: Technique, iterations: int) -> int:
    """T, or 1 for a technique without readings, which trains, or reads copies in one pass."""
    return 1 if isinstance(technique, Trained) or technique.copies > 1 else iterations


@dataclass(frozen=True)
class Grid:
    """Every technique with every method, calibration and selection of demonstrations, after each number of readings.

    All methods have the same number of readings T. `readings` are the numbers of readings that were tried for each
    technique, if they are not T, and `left_out` are calibrations that were not tried for lack of time. The first
    technique is Deep-Thinking, the first calibration is `none`, and the first selection is the selection of plain
    in-context learning; the rest follow, simplest first.
    """

    methods: tuple[Method, ...]
    calibrations: tuple[str, ...] = (NONE,)
    selections: tuple[str | None, ...] = (None,)
    techniques: tuple[Technique, ...] = (technique_of(DEEP_THINKING),)
    readings: tuple[int, ...] | None = None
    left_out: tuple[str, ...] = ()

    @property
    def iterations(self) -> int:
        """T."""
        return self.methods[0].iterations

    @property
    def asked(self) -> tuple[int, ...]:
        """The number of readings to try for each technique."""
        return tuple(most_readings(each, self.iterations) for each in self.techniques)

    @cached_property
    def settings(self) -> list[Setting]:
        """All settings that were tried, simplest first: by T, technique and calibration; the first is plain.

        At T = 1 all methods are the same setting.
        """
        readings = self.asked if self.readings is None else self.readings
        return [
            Setting(technique, replace(method, iterations=t), calibration, selection, (chosen, kind, number, t - 1))
            for t in range(1, max(readings) + 1)
            for kind, technique in enumerate(self.techniques)
            if t <= readings[kind]
            for calibration in self.calibrations
            for chosen, selection in enumerate(self.selections)
            for number, method in enumerate(self.methods if t > 1 else self.methods[:1])
        ]


def best_of_trajectories(settings: Sequence[Setting], right: Sequence[int]) -> list[int]:
    """The best setting of every trajectory, by the number of rows that it labels correctly; the first of equals.

    The memories of a trajectory are its readings: all T > 1, or T = 1 alone. Plain in-context learning always comes
    first; the others are sorted by the number, largest first.
    """
    best: dict[tuple[int, ...], int] = {}
    for number, setting in enumerate(settings[1:], start=1):
        key = setting.place[:3] if setting.method.iterations > 1 else setting.place[:2]
        if key not in best or right[number] > right[best[key]]:
            best[key] = number
    return [0, *sorted(best.values(), key=lambda number: -right[number])]
