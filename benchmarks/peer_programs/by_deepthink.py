"""`deepthink predict`, with its own engine or with vLLM's."""

from __future__ import annotations

from pathlib import Path

from clock import MEMORY, Score, Scores, main

from deepthink_cli.data.examples import Skipped
from deepthink_cli.events import silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.predict import Labelling
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.inputs import check_rows
from deepthink_cli.tasks.rows import in_columns


def load(folder: Path, model: str, engine: str) -> Score:
    """The model and the memory."""
    scorer = Scorer.open(folder / MEMORY)
    options = ModelOptions.checked(model=model, engine=engine, device="cpu", offline=True)
    loaded = scorer.load(scorer.find(options, silent), silent)

    def score(path: Path) -> Scores:
        source = in_columns(scorer.memory, path)
        labelling = Labelling(scorer, source, check_rows(scorer.demonstrations, source), options)
        rows = (row for part in labelling(silent, loaded) for row in part)
        return [list(row.scores.values()) for row in rows if not isinstance(row, Skipped)]

    return score


if __name__ == "__main__":
    main(load)
