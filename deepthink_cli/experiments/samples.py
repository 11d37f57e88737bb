"""Every input's scores of one row of a run as a Parquet file, and the texts of the inputs, once for all rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import Text
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.experiments.results import Result, corrections_of
from deepthink_cli.io.atomic import replacing

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction


FOLDER = "samples"
_NUMBERS = ["probability", *(f"{name}.list.element" for name in ("scores", "calibrated", "bias"))]
_WORDS = ["gold", "label", "candidates.list.element", "scoring"]  # with both, files are a third smaller


def _again() -> str:
    return f"the command of the run, with {option('samples')}, makes it again"


def samples_path(folder: Path, row: Result) -> Path:
    """`folder/samples/TASK-seedS-TN-KEY.parquet`, as in `sst2-seed0-T5-0d75aa67c1ff4614.parquet`."""
    setting = row.setting
    task = re.sub(r"[^\w.-]", "_", setting.task)[:100]  # names of tasks in a family contain a slash
    return folder / FOLDER / f"{task}-seed{setting.seed}-T{setting.iteration}-{row.key}.parquet"


def find_samples(folder: Path, row: Result) -> Path | None:
    """The file of a row's scores; None if it is missing."""
    path = samples_path(folder, row)
    return path if path.is_file() else None


def write_samples(folder: Path, row: Result, predictions: Sequence[Prediction]) -> Path:
    """Write the file of `samples_path`: where, gold, label, probability, candidates and their scores.

    Scores are log-probabilities in nats, in the order of the candidates. If the row's setting has a calibration, label
    and probability are those of the corrected scores, `scores` are the raw ones, and `calibrated` and `bias` hold the
    corrected ones and what was taken off; `scoring` is that of the setting, if it has one. Free answers have a `text`,
    and neither candidates nor scores. Raises DeepThinkError if the write fails.
    """
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
    if corrections is not None:
        columns["calibrated"] = [list(correction.prediction.scores.values()) for correction in corrections]
        columns["bias"] = [list(correction.bias.values()) for correction in corrections]
    if row.setting.scoring is not None:
        columns["scoring"] = [row.setting.scoring] * len(predictions)
    if any(prediction.text is not None for prediction in predictions):
        columns["text"] = [prediction.text for prediction in predictions]
    path, numbers = samples_path(folder, row), [name for name in _NUMBERS if name.partition(".")[0] in columns]
    _write(path, columns, use_byte_stream_split=numbers, use_dictionary=_WORDS)
    return path


def _write(path: Path, columns: dict[str, list[Any]], **options: Any) -> None:
    """Write a Parquet file with checksums, which its readers verify; raises DeepThinkError if that fails."""
    import pyarrow
    import pyarrow.parquet

    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path, "samples") as temporary:
            table = pyarrow.table(columns)
            pyarrow.parquet.write_table(table, temporary, compression="zstd", write_page_checksum=True, **options)
    except OSError as error:
        raise DeepThinkError.of("samples", path, f"cannot be written: {error.strerror or error}") from error


def read_samples(path: Path, row: Result) -> dict[str, list[Any]]:
    """The columns `where`, `gold`, `label`, `candidates` and `scores` of a row's file, as its labels were chosen.

    Raises InputError if the file is damaged, or its answers are not those of the row.
    """
    scores = "scores" if row.setting.calibration is None else "calibrated"
    names = ["where", "gold", "label", "candidates", scores]
    read = _read(path, names, f"not a file of samples; {_again()}")
    columns = {"scores" if name == scores else name: values for name, values in read.items()}
    if len(columns["label"]) != row.n:
        raise InputError(f"{path}: {len(columns['label'])} inputs, its result has {row.n}; {_again()}")
    right = [label == gold for label, gold in zip(columns["label"], columns["gold"], strict=True)]
    if right != row.was_right():
        raise InputError(f"{path}: its labels are not those that its result counts; {_again()}")
    return columns


def texts_path(folder: Path, rows_sha256: str) -> Path:
    """`folder/samples/inputs-DIGEST.parquet`, by the digest of the evaluated rows."""
    return folder / FOLDER / f"inputs-{rows_sha256[:16]}.parquet"


def write_texts(folder: Path, rows_sha256: str, predictions: Sequence[Prediction]) -> None:
    """Add the texts of these inputs to the file of their rows: columns `where` and `text`.

    A result may skip inputs that are too long after its demonstrations, so results on the same rows add to one file.
    Raises DeepThinkError if the write fails.
    """
    path, known = texts_path(folder, rows_sha256), dict[str, str]()
    with suppress(InputError):  # a damaged file is made again
        known = read_texts(folder, rows_sha256)
    texts = known | {prediction.query.where: as_lines(prediction.query.text) for prediction in predictions}
    if len(texts) == len(known):
        return
    _write(path, {"where": list(texts), "text": list(texts.values())})


def read_texts(folder: Path, rows_sha256: str | None) -> dict[str, str]:
    """The text of every known input by its place, as in `data/sst2/validation.jsonl:7`.

    It is empty if there is no file. Raises InputError for a damaged file.
    """
    if rows_sha256 is None or not (path := texts_path(folder, rows_sha256)).is_file():
        return {}
    read = _read(path, ["where", "text"], "not a file of inputs; remove it")
    return dict(zip(read["where"], read["text"], strict=True))


def _read(path: Path, names: Sequence[str], refusal: str) -> dict[str, list[Any]]:
    """Some columns of a file, all of which are verified; raises InputError with the refusal for a damaged file."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
        return {name: table[name].to_pylist() for name in names}
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {refusal}") from error


def without_samples(folder: Path, rows: Iterable[Result]) -> dict[str, Result]:
    """The rows by key whose samples, or the texts of their inputs, are missing, damaged or those of other answers."""

    @cache
    def known(rows_sha256: str | None) -> Collection[str]:
        with suppress(InputError):
            return read_texts(folder, rows_sha256).keys()
        return ()

    def has_samples(row: Result) -> bool:
        path = find_samples(folder, row)
        with suppress(InputError):
            return path is not None and set(read_samples(path, row)["where"]) <= set(known(row.setting.rows_sha256))
        return False

    return {row.key: row for row in rows if not has_samples(row)}


def as_lines(text: Text) -> str:
    """A text, or the named texts of a template with several fields, one a line."""
    return "\n".join(f"{name}: {value}" for name, value in text.items()) if isinstance(text, Mapping) else text
