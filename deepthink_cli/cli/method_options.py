"""Options of the method: of one memory, and of a run that repeats it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.cli.data_options import DrawingArguments
from deepthink_cli.cli.options import DATA, METHOD, option
from deepthink_cli.method import Positions
from deepthink_cli.options import MethodOptions, RunOptions, TechniqueOptions
from deepthink_cli.techniques.registry import DEEP_THINKING

IterationChoice = Annotated[
    str,
    option("--iteration", panel=METHOD, metavar="T|all", help="Which kept iteration to use: a number, last, or all."),
]
EnsembleFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        rich_help_panel=METHOD,
        metavar="FILE",
        help="Another memory of the same model, template and labels: average the log-probabilities. Repeatable.",
    ),
]
_Iterations = Annotated[
    str,
    option(
        "--iterations",
        "-T",
        panel=METHOD,
        metavar="T",
        help="Readings of the demonstrations; 1 is plain in-context learning.",
    ),
]
_Positions = Annotated[
    Positions,
    option(
        "--positions",
        panel=METHOD,
        help="Positions of readings after the first: after the memory (continued) or the same again (restarted).",
    ),
]


@dataclass(frozen=True)
class MethodArguments:
    """The method of one memory, and which of its iterations are stored."""

    iterations: _Iterations = "5"
    eta: Annotated[
        str,
        option("--eta", panel=METHOD, metavar="ETA", help="Gate: how far each reading moves the memory, in (0, 1]."),
    ] = "0.01"
    momentum: Annotated[
        str,
        option(
            "--momentum", panel=METHOD, metavar="BETA", help="Momentum: 0 as in the paper, 0.9 as in the official code."
        ),
    ] = "0"
    positions: _Positions = "continued"
    keep: Annotated[
        str,
        option("--keep", panel=METHOD, metavar="WHICH", help="Iterations to store: last, all, or numbers as in 1,3,5."),
    ] = "last"

    def checked(self) -> MethodOptions:
        """The validated options; raises InputError for each wrong value, and for kept iterations beyond T."""
        options = MethodOptions.checked(**asdict(self))
        _ = options.kept  # raises for iterations beyond T
        return options


@dataclass(frozen=True)
class TechniqueArguments:
    """What makes the memory, if not Deep-Thinking alone."""

    method: Annotated[
        str,
        typer.Option(
            "--method",
            rich_help_panel=METHOD,
            metavar="NAME",
            help="deep-thinking; ct-kv: train the memory by gradients (Context Tuning); or a control, also with -T: "
            "repeat-R: the demonstrations R times in the context; flipped, fresh: other label words.",
        ),
    ] = DEEP_THINKING
    steps: Annotated[
        str | None,
        typer.Option("--steps", rich_help_panel=METHOD, metavar="N", help="Gradient steps of ct-kv. Default: 200."),
    ] = None
    lr: Annotated[
        str | None,
        typer.Option("--lr", rich_help_panel=METHOD, metavar="RATE", help="Learning rate of ct-kv. Default: 0.001."),
    ] = None

    def checked(self) -> TechniqueOptions:
        """The validated options; raises InputError for each wrong value, and for parameters of another method."""
        options = TechniqueOptions.checked(**asdict(self))
        _ = options.trains  # raises for parameters of another method
        return options


@dataclass(frozen=True)
class SweepArguments:
    """The grid of a run: gates and seeds, and the dev rows to choose among them."""

    iterations: _Iterations = "5"
    at: Annotated[
        str,
        typer.Option(
            "--at",
            rich_help_panel=METHOD,
            metavar="T,...",
            help="Iterations to score: all, or numbers as in 1,2,5,10 (1 to compare with); those between are read too.",
        ),
    ] = "all"
    eta: Annotated[
        str, option("--eta", panel=METHOD, metavar="ETA,...", help="Gate in (0, 1], or several separated by commas.")
    ] = "0.01"
    momentum: Annotated[
        str,
        option(
            "--momentum", panel=METHOD, metavar="BETA,...", help="Momentum: 0 as in the paper; or several, as in 0,0.9."
        ),
    ] = "0"
    positions: _Positions = "continued"
    select: Annotated[
        str | None,
        typer.Option(
            "--select",
            rich_help_panel=METHOD,
            metavar="dev",
            help="Also score a dev set of training rows, with which report then chooses T and eta.",
        ),
    ] = None
    dev_size: Annotated[
        str | None,
        typer.Option(
            "--dev-size",
            rich_help_panel=METHOD,
            metavar="N",
            help="Rows of the dev set. Default: as many as there are test rows.",
        ),
    ] = None
    seeds: Annotated[
        str,
        option(
            "--seeds",
            panel=DATA,
            metavar="N",
            help="Demonstration seeds: a count (10 for 0 to 9) or a list, as in 3,5; '42,' is the single seed 42.",
        ),
    ] = "1"

    def checked(self, drawing: DrawingArguments, limit: str | None) -> RunOptions:
        """The validated options of a run; raises InputError for each wrong value, and for iterations beyond T."""
        values = asdict(self) | asdict(drawing) | {"seed": 0, "limit": limit}
        options = RunOptions.checked(etas=values.pop("eta"), momentums=values.pop("momentum"), **values)
        _ = options.scored  # raises for iterations beyond T
        return options
