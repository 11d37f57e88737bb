"""Options of a run that cross its readings with ways to choose demonstrations, techniques and corrections."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE
from deepthink_cli.cli.options import DATA, METHOD, option
from deepthink_cli.cli.select_options import Balance, CacheFolder, PoolSize
from deepthink_cli.cli.technique_options import LearningRate, Steps


@dataclass(frozen=True)
class CrossingArguments:
    """What a run crosses T and eta with; lists are separated by commas."""

    demos_by: Annotated[
        str | None,
        option(
            "--demos-by",
            panel=DATA,
            metavar="NAME,...",
            help="Choose the demonstrations with these methods (deepthink select --list), each from the same pool.",
        ),
    ] = None
    pool_size: PoolSize = None
    balance: Balance = False
    cache: CacheFolder = None
    method: Annotated[
        str | None,
        option(
            "--method",
            panel=METHOD,
            metavar="NAME,...",
            help="Also other ways to make a memory, as in deep-thinking,repeat-2,ct-kv,flipped,fresh,ensemble-4.",
        ),
    ] = None
    steps: Steps = None
    lr: LearningRate = None
    calibrate: Annotated[
        str | None,
        option(
            "--calibrate",
            panel=METHOD,
            metavar="NAME,...",
            help=f"Also correct the scores: {', '.join((NONE, *CALIBRATIONS))}, or several separated by commas.",
        ),
    ] = None

    def values(self) -> dict[str, Any]:
        """The values that `RunOptions` checks; None for those that were not given."""
        values = asdict(self)
        del values["cache"]
        return values
