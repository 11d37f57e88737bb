"""The options of every step of scoring, for the commands that score rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.cli.names import flag
from deepthink_cli.options import Options, joined
from deepthink_cli.scoring.scoring import STEPS, Scoring

if TYPE_CHECKING:
    ScoringOptions = Options
else:
    ScoringOptions = joined("ScoringOptions", STEPS)


def typed(scoring: Scoring) -> str:
    """The options of a scoring as they are typed after a command, each with a space before it."""
    return "".join(f" {flag(name)} {value}" for name, value in scoring.recorded.items())
