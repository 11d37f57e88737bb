"""Options of a run that cross its readings with ways to choose demonstrations, techniques and corrections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE
from deepthink_cli.cli import completion
from deepthink_cli.cli.data_options import Cache, PoolArguments
from deepthink_cli.cli.options import DATA, METHOD, option
from deepthink_cli.cli.technique_options import LearningRate, Steps, Updates
from deepthink_cli.errors import InputError
from deepthink_cli.techniques.registry import CT_KV


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
            help="Ways to make memories, as in deep-thinking,repeat-2,ct-kv,flipped,fresh,ensemble-4. "
            "Default: deep-thinking.",
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
        """The given values, by their names in `RunOptions`; raises InputError for one without the option it is for."""
        if self.demos_by is None and (self.pool_size is not None or self.balance):
            name = "--balance" if self.pool_size is None else f"--pool-size {self.pool_size}"
            raise InputError(f"{name}: only with --demos-by; name a method, or omit it")
        if CT_KV not in (self.method or "").split(",") and (self.steps is not None or self.lr is not None):
            name = f"--lr {self.lr}" if self.steps is None else f"--steps {self.steps}"
            raise InputError(f"{name}: only with --method {CT_KV}; name it, or omit this")
        named = {"methods": self.method, "calibrations": self.calibrate, "balance": self.balance or None}
        named["updates"] = self.update
        for name in ("demos_by", "pool_size", "steps", "lr"):
            named[name] = getattr(self, name)
        return {name: value for name, value in named.items() if value is not None}
