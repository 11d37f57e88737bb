"""Options of a run that cross its readings with ways to choose demonstrations, techniques and corrections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE
from deepthink_cli.cli import completion
from deepthink_cli.cli.data_options import Cache, PoolArguments
from deepthink_cli.cli.method_options import LearningRate, Steps, Updates, added
from deepthink_cli.cli.options import DATA, METHOD, option
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES


@dataclass(frozen=True)
class CrossingArguments(PoolArguments):
    """What a run crosses T and eta with; lists are separated by commas."""

    demos_by: Annotated[
        str | None,
        option(
            "--demos-by",
            panel=DATA,
            metavar="NAME,...",
            autocompletion=completion.several_methods,
            help="Choose demonstrations with these methods (deepthink select --list), each from the same pool.",
        ),
    ] = None
    cache: Cache = None
    method: Annotated[
        str | None,
        option(
            "--method",
            panel=METHOD,
            metavar="NAME,...",
            autocompletion=completion.several_techniques,
            help="Ways to make memories, as in deep-thinking,repeat-2,ct-kv,flipped,fresh,ensemble-4"
            f"{added(TECHNIQUES)}. Default: {DEEP_THINKING}.",
        ),
    ] = None
    steps: Steps = None
    lr: LearningRate = None
    update: Updates = None
    calibrate: Annotated[
        str | None,
        option(
            "--calibrate",
            panel=METHOD,
            metavar="NAME,...",
            autocompletion=completion.calibrations,
            help=f"Corrections of the scores, each with rows of its own: {', '.join((NONE, *CALIBRATIONS))}.",
        ),
    ] = None

    def values(self) -> dict[str, Any]:
        """The given values, by their names in `RunOptions`."""
        named = {"methods": self.method, "calibrations": self.calibrate, "balance": self.balance or None}
        named["updates"] = self.update
        for name in ("demos_by", "pool_size", "steps", "lr"):
            named[name] = getattr(self, name)
        return {name: value for name, value in named.items() if value is not None}
