"""The texts of the inputs that a run evaluates, once for all results on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deepthink_cli.data.examples import Text
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.atomic import replacing
from deepthink_cli.prediction import Prediction
from deepthink_cli.runs.samples import FOLDER


def texts_path(folder: Path, rows_sha256: str) -> Path:
    """`folder/samples/inputs-DIGEST.parquet`, by the digest of the evaluated rows."""
    return folder / FOLDER / f"inputs-{rows_sha256[:16]}.parquet"


def write_texts(folder: Path, rows_sha256: str, predictions: Sequence[Prediction]) -> None:
    """Add the texts of these inputs to the file of their rows: columns `where` and `text`.

    A result may skip inputs that are too long after its demonstrations, so results on the same rows add to one file.
    Raises DeepThinkError if the write fails.
    """
    import pyarrow
    import pyarrow.parquet

    path, known = texts_path(folder, rows_sha256), read_texts(folder, rows_sha256)
    texts = known | {prediction.query.where: as_lines(prediction.query.text) for prediction in predictions}
    if len(texts) == len(known):
        return
    table = pyarrow.table({"where": list(texts), "text": list(texts.values())})
    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path, "--samples") as temporary:
            pyarrow.parquet.write_table(table, temporary, compression="zstd")
    except OSError as error:
        raise DeepThinkError(f"--samples {path}: cannot be written: {error.strerror or error}") from error


def read_texts(folder: Path, rows_sha256: str | None) -> dict[str, str]:
    """The text of every known input by its place, as in `data/sst2/validation.jsonl:7`.

    It is empty if there is no file, and for results of older versions, which have no digest of their rows. Raises
    InputError for a damaged file.
    """
    import pyarrow
    import pyarrow.parquet

    if rows_sha256 is None or not (path := texts_path(folder, rows_sha256)).is_file():
        return {}
    try:
        table = pyarrow.parquet.read_table(path, columns=["where", "text"])
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a file of inputs; remove it") from error
    return dict(zip(table["where"].to_pylist(), table["text"].to_pylist(), strict=True))


def as_lines(text: Text) -> str:
    """A text, or the named texts of a template with several fields, one a line."""
    return "\n".join(f"{name}: {value}" for name, value in text.items()) if isinstance(text, Mapping) else text
