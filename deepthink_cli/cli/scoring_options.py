"""The options of every step of scoring, for the commands that score rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.options import Options, joined
from deepthink_cli.scoring.scoring import STEPS

if TYPE_CHECKING:
    ScoringOptions = Options
else:
    ScoringOptions = joined("ScoringOptions", STEPS)
