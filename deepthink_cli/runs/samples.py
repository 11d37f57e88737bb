"""Every input's scores of one row of a run, as a Parquet file named after the row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.atomic import replacing
from deepthink_cli.runs.results import Result

if TYPE_CHECKING:
    from deepthink_cli.prediction import Correction, Prediction

FOLDER = "samples"
_NUMBERS = ["probability", *(f"{name}.list.element" for name in ("scores", "calibrated", "bias"))]
_WORDS = ["gold", "label", "candidates.list.element", "score"]
# A third smaller than with the defaults, with checksums that `read_samples` verifies.
_WRITTEN: dict[str, Any] = {"compression": "zstd", "use_dictionary": _WORDS, "write_page_checksum": True}
_AGAIN = "the command of the run, with --samples, makes it again"


def samples_path(folder: Path, row: Result) -> Path:
    """`folder/samples/TASK-seedS-TN-KEY.parquet`, as in `sst2-seed0-T5-0d75aa67c1ff4614.parquet`."""
    setting = row.setting
    task = re.sub(r"[^\w.-]", "_", setting.task)[:100]  # names of tasks in a family contain a slash
    return folder / FOLDER / f"{task}-seed{setting.seed}-T{setting.iteration}-{row.key}.parquet"


def find_samples(folder: Path, row: Result) -> Path | None:
    """The file of a row's scores, also one of an older version, which named it `KEY.parquet`; None if it is missing."""
    paths = (samples_path(folder, row), folder / FOLDER / f"{row.key}.parquet")
    return next((path for path in paths if path.is_file()), None)


def write_samples(folder: Path, row: Result, predictions: Sequence[Prediction]) -> Path:
    """Write the file of `samples_path`: where, gold, label, probability, candidates and their scores.

    Scores are log-probabilities in nats, in the order of the candidates. If the row's setting has a calibration, label
    and probability are those of the corrected scores, `scores` are the raw ones, and `calibrated` and `bias` hold the
    corrected ones and what was taken off. If it has a score, `score` is its name. Free answers have a `text`, and
    neither candidates nor scores. Raises DeepThinkError if the write
    fails.
    """
    import pyarrow
    import pyarrow.parquet

    from deepthink_cli.runs.scorer import corrections_of  # not at the top: reports find samples without torch

    corrections = corrections_of(row.setting, predictions)
    labelled = predictions if corrections is None else [correction.prediction for correction in corrections]
    columns: dict[str, list[Any]] = {
        "where": [prediction.query.where for prediction in predictions],
        "gold": [prediction.query.gold for prediction in predictions],
        "label": [prediction.label for prediction in labelled],
        "probability": [prediction.probability for prediction in labelled],
        "candidates": [list(prediction.scores) for prediction in predictions],
        "scores": [list(prediction.scores.values()) for prediction in predictions],
    }
    columns |= _further(row, predictions, corrections)
    table, numbers = pyarrow.table(columns), [name for name in _NUMBERS if name.partition(".")[0] in columns]
    path = samples_path(folder, row)
    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path, "--samples") as temporary:
            pyarrow.parquet.write_table(table, temporary, use_byte_stream_split=numbers, **_WRITTEN)
    except OSError as error:
        raise DeepThinkError(f"--samples {path}: cannot be written: {error.strerror or error}") from error
    return path


def read_samples(path: Path, row: Result) -> dict[str, list[Any]]:
    """The columns `where`, `gold`, `label`, `candidates` and `scores` of a row's file, as its labels were chosen.

    Raises InputError if the file is damaged, or its answers are not those of the row.
    """
    import pyarrow
    import pyarrow.parquet

    scores = "scores" if row.setting.calibration is None else "calibrated"
    names = ["where", "gold", "label", "candidates", scores]
    try:
        table = pyarrow.parquet.read_table(path, page_checksum_verification=True)  # all columns, to find damage
        columns = {"scores" if name == scores else name: table[name].to_pylist() for name in names}
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a file of samples; {_AGAIN}") from error
    if len(columns["label"]) != row.n:
        raise InputError(f"{path}: {len(columns['label'])} inputs, its result has {row.n}; {_AGAIN}")
    right = [label == gold for label, gold in zip(columns["label"], columns["gold"], strict=True)]
    if right != row.was_right():
        raise InputError(f"{path}: its labels are not those that its result counts; {_AGAIN}")
    return columns


def _further(
    row: Result, predictions: Sequence[Prediction], corrections: Sequence[Correction] | None
) -> dict[str, list[Any]]:
    """The columns that only some rows have."""
    columns: dict[str, list[Any]] = {}
    if corrections is not None:
        columns["calibrated"] = [list(correction.prediction.scores.values()) for correction in corrections]
        columns["bias"] = [list(correction.bias.values()) for correction in corrections]
    if row.setting.score is not None:
        columns["score"] = [row.setting.score] * len(predictions)
    if any(prediction.text is not None for prediction in predictions):
        columns["text"] = [prediction.text for prediction in predictions]
    return columns
