"""Options of the commands that score rows: those of every step of scoring, and of files that are not memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepthink_cli.artifact.container import OPENERS
from deepthink_cli.cli.grouped import Without
from deepthink_cli.options import Options, joined
from deepthink_cli.scoring.scoring import STEPS

if TYPE_CHECKING:
    ScoringOptions = Options
    OpenerOptions = Options
else:
    ScoringOptions = joined("ScoringOptions", STEPS)
    OpenerOptions = joined("OpenerOptions", {each.file: each.options for each in OPENERS.values()})

# Where memories are made and compared, no row is shortened, and queries attend to whole memories.
WITHOUT_PARTS = Without(
    *(name for step in STEPS.values() if step.only_of_rows or step.attends for name in step.model_fields)
)
