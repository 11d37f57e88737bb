"""`deepthink predict`, with its own engine or with vLLM's."""

from __future__ import annotations

from pathlib import Path

from clock import MEMORY, Score, Scores, main

from deepthink_cli.artifact.opening import find_its_model, open_memory
from deepthink_cli.data.examples import Skipped
from deepthink_cli.events import silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.labeller import RowLabeller
from deepthink_cli.prediction.predict import predict_file


def load(folder: Path, model: str, engine: str) -> Score:
    """The model and the memory."""
    memory = open_memory(folder / MEMORY)
    options = ModelOptions.checked(model=model, engine=engine, device="cpu", offline=True)
    loaded = RowLabeller(memory, (), find_its_model(memory, options, silent))

    def score(path: Path) -> Scores:
        rows = (row for part in predict_file(memory, str(path), loaded=loaded) for row in part)
        return [list(row.scores.values()) for row in rows if not isinstance(row, Skipped)]

    return score


if __name__ == "__main__":
    main(load)
