"""Every input's scores of one row of a run, as a Parquet file named after the row's key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.atomic import replacing
from deepthink_cli.prediction import Prediction
from deepthink_cli.runs.results import Result

FOLDER = "samples"
_NUMBERS = ["probability", "scores.list.element"]
_WORDS = ["gold", "label", "candidates.list.element"]


def write_samples(folder: Path, row: Result, predictions: Sequence[Prediction]) -> Path:
    """Write `folder/samples/KEY.parquet`: where, gold, label, probability, candidates and their scores.

    Scores are log-probabilities in nats, in the order of the candidates. Raises DeepThinkError if the
    write fails.
    """
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "where": [prediction.query.where for prediction in predictions],
            "gold": [prediction.query.gold for prediction in predictions],
            "label": [prediction.label for prediction in predictions],
            "probability": [prediction.probability for prediction in predictions],
            "candidates": [list(prediction.scores) for prediction in predictions],
            "scores": [list(prediction.scores.values()) for prediction in predictions],
        }
    )
    path = folder / FOLDER / f"{row.key}.parquet"
    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path, "--samples") as temporary:
            # A third smaller than with the defaults.
            pyarrow.parquet.write_table(
                table, temporary, compression="zstd", use_dictionary=_WORDS, use_byte_stream_split=_NUMBERS
            )
    except OSError as error:
        raise DeepThinkError(f"--samples {path}: cannot be written: {error.strerror or error}") from error
    return path
