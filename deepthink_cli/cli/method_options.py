"""Options of the method and of other techniques, each declared once for all commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE
from deepthink_cli.cli import completion
from deepthink_cli.cli.data_options import DrawingArguments, RunCode, Unsafe
from deepthink_cli.cli.options import DATA, METHOD, option
from deepthink_cli.experiments.options import RunOptions
from deepthink_cli.method import MethodOptions, Positions
from deepthink_cli.options import ScoreName
from deepthink_cli.registry import Registry
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.options import TechniqueOptions
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, sample
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.updates.registry import RULES


def added(registry: Registry[Any]) -> str:
    """What other packages add to a registry, for the help of an option."""
    return f"; installed: {', '.join(registry.added)}" if registry.added else ""


def _techniques(techniques: Iterable[Technique]) -> str:
    """The techniques with their summaries, those that share one together."""
    described = dict[str, list[str]]()
    for each in techniques:
        described.setdefault(each.summary, []).append(each.family)
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in described.items())


_OTHERS = [each for each in map(sample, TECHNIQUES.own) if each.members == 1 and each.name != DEEP_THINKING]
_TRAINED = [each for each in _OTHERS if isinstance(each, Trained)]
_CONTROLS = [each for each in _OTHERS if each not in _TRAINED]
_TRAINING = ", ".join(each.name for each in _TRAINED)
Steps = Annotated[
    str | None,
    option("--steps", panel=METHOD, metavar="N", help=f"Gradient steps of {_TRAINING}. Default: {Trained.steps}."),
]
Update = Annotated[
    str | None,
    option(
        "--update",
        panel=METHOD,
        metavar="RULE[:PARAMETER=VALUE,...]",
        autocompletion=completion.updates,
        help="How a reading changes the memory, with --eta: gate, as in the paper, or an ablation, such as keys-only, "
        f"cosine:readings=15 or rotated (docs/think.md){added(RULES)}. Default: gate.",
    ),
]
Updates = Annotated[
    str | None,
    option(
        "--update",
        panel=METHOD,
        metavar="RULE,...",
        autocompletion=completion.updates,
        help="How readings change the memory, each rule with rows of its own: gate, as in the paper, and ablations, "
        f"such as keys-only, cosine:readings=15 or rotated (docs/think.md){added(RULES)}. Default: gate.",
    ),
]
LearningRate = Annotated[
    str | None, option("--lr", panel=METHOD, metavar="X", help=f"Learning rate of {_TRAINING}. Default: {Trained.lr}.")
]


IterationChoice = Annotated[
    str,
    option("--iteration", panel=METHOD, metavar="T|all", help="Which kept iteration to use: a number, last, or all."),
]
Calibrate = Annotated[
    str | None,
    option(
        "--calibrate",
        panel=METHOD,
        metavar="NAME,...",
        autocompletion=completion.calibrations,
        help=f"Correct the scores for a bias toward some labels: {', '.join((NONE, *CALIBRATIONS))}; "
        "of several, the first gives the label.",
    ),
]
Score = Annotated[
    ScoreName,
    option(
        "--score",
        panel=METHOD,
        help="Compare candidates by the sum of their log-probabilities, as in the paper; by the mean per token; or by "
        "end, the sum with the first token of what follows a label, so that 'bug report' can win against 'bug'.",
    ),
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
ITERATIONS = option(
    "--iterations",
    "-T",
    panel=METHOD,
    metavar="T",
    help="Readings of the demonstrations; 1 is plain in-context learning.",
)
SEEDS = option(
    "--seeds",
    panel=DATA,
    metavar="N",
    help="Demonstration seeds: a count (10 for 0 to 9) or a list, as in 3,5; '42,' is the single seed 42.",
)
_Iterations = Annotated[str, ITERATIONS]
_Positions = Annotated[
    Positions,
    option(
        "--positions",
        panel=METHOD,
        help="Positions of readings after the first: after the memory (continued) or the same again (restarted).",
    ),
]
_Etas = Annotated[
    str, option("--eta", panel=METHOD, metavar="ETA,...", help="Gate in (0, 1], or several separated by commas.")
]
_Momentums = Annotated[
    str,
    option(
        "--momentum", panel=METHOD, metavar="BETA,...", help="Momentum: 0 as in the paper; or several, as in 0,0.9."
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
    update: Update = None

    def checked(self) -> MethodOptions:
        """The validated options; raises InputError for each wrong value, and for kept iterations beyond T."""
        defaults = {each.name: each.default for each in fields(self)}  # not given: an update rule may not have them
        options = MethodOptions.checked(
            **{name: value for name, value in asdict(self).items() if value != defaults[name]}
        )
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
            autocompletion=completion.techniques,
            help=f"{DEEP_THINKING}; {_techniques(_TRAINED)}; or a control, also with -T: "
            f"{_techniques(_CONTROLS)}{added(TECHNIQUES)}.",
        ),
    ] = DEEP_THINKING
    steps: Steps = None
    lr: LearningRate = None

    def checked(self) -> TechniqueOptions:
        """The validated options; raises InputError for each wrong value."""
        return TechniqueOptions.checked(**asdict(self))


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
    eta: _Etas = "0.01"
    momentum: _Momentums = "0"
    positions: _Positions = "continued"
    score: Score = "sum"
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
    seeds: Annotated[str, SEEDS] = "1"
    run_code: RunCode = False
    unsafe: Unsafe = False

    def checked(self, drawing: DrawingArguments, limit: str | None, crossing: Mapping[str, Any]) -> RunOptions:
        """The validated options of a run; raises InputError for each wrong value, and for iterations beyond T.

        `crossing` holds values of further fields.
        """
        values = asdict(self) | asdict(drawing) | {"seed": 0, "limit": limit, **crossing}
        options = RunOptions.checked(etas=values.pop("eta"), momentums=values.pop("momentum"), **values)
        _ = options.scored  # raises for iterations beyond T
        return options


@dataclass(frozen=True)
class TuneArguments:
    """The settings to choose from, and the folds of the rows that choose."""

    iterations: Annotated[
        str,
        option("--iterations", "-T", panel=METHOD, metavar="T", help="Readings; each number up to T is tried."),
    ] = "15"
    eta: _Etas = "0.01,0.1"
    momentum: _Momentums = "0"
    positions: Annotated[
        str,
        option(
            "--positions",
            panel=METHOD,
            metavar="WHICH,...",
            help="Positions of readings after the first: continued, restarted, or both separated by a comma.",
        ),
    ] = "continued"
    calibrate: Annotated[
        str | None,
        option(
            "--calibrate",
            panel=METHOD,
            metavar="NAME,...",
            autocompletion=completion.calibrations,
            help="Corrections of the scores to try beside none. Default: batch.",
        ),
    ] = None
    folds: Annotated[
        str,
        typer.Option(
            "--folds", rich_help_panel=DATA, metavar="K|loo", help="Folds, 3 or more; loo for as many as rows."
        ),
    ] = "5"
    seed: Annotated[
        str, option("--seed", panel=DATA, metavar="S", help="Seed of the folds and of the order of the rows.")
    ] = "0"
    shots: Annotated[
        str | None,
        option("--shots", panel=DATA, metavar="K", help="Choose K of the rows as demonstrations. Default: read all."),
    ] = None
    demos_by: Annotated[
        str | None,
        option(
            "--demos-by",
            panel=DATA,
            metavar="NAME,...",
            autocompletion=completion.several_methods,
            help="Methods that choose the K demonstrations (deepthink select --list), to try beside random.",
        ),
    ] = None

    def checked(self) -> TuneOptions:
        """The validated options; raises InputError for each wrong value."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return TuneOptions.checked(etas=values.pop("eta"), momentums=values.pop("momentum"), **values)
