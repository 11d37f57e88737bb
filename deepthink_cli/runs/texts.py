"""The texts of the inputs that a run evaluates, once for all results on the same rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Text
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.atomic import replacing
from deepthink_cli.runs.results import Result
from deepthink_cli.runs.samples import FOLDER, find_samples, read_samples

if TYPE_CHECKING:
    from deepthink_cli.prediction import Prediction


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

    path, known = texts_path(folder, rows_sha256), dict[str, str]()
    with suppress(InputError):  # a damaged file is made again
        known = read_texts(folder, rows_sha256)
    texts = known | {prediction.query.where: as_lines(prediction.query.text) for prediction in predictions}
    if len(texts) == len(known):
        return
    table = pyarrow.table({"where": list(texts), "text": list(texts.values())})
    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path, "--samples") as temporary:
            pyarrow.parquet.write_table(table, temporary, compression="zstd", write_page_checksum=True)
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
        table = pyarrow.parquet.read_table(path, columns=["where", "text"], page_checksum_verification=True)
        return dict(zip(table["where"].to_pylist(), table["text"].to_pylist(), strict=True))
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a file of inputs; remove it") from error


def without_samples(folder: Path, rows: Iterable[Result]) -> dict[str, Result]:
    """The rows by key whose samples, or the texts of their inputs, are missing, damaged or those of other answers.

    Rows of older versions that would be made again with another key are left out.
    """

    @cache
    def known(rows_sha256: str) -> Collection[str]:
        with suppress(InputError):
            return read_texts(folder, rows_sha256).keys()
        return ()

    def has_samples(row: Result, rows_sha256: str) -> bool:
        path = find_samples(folder, row)
        with suppress(InputError):
            return path is not None and set(read_samples(path, row)["where"]) <= set(known(rows_sha256))
        return False

    digests = ((row, row.setting.rows_sha256) for row in rows if row.setting.applied == row.setting)
    return {row.key: row for row, digest in digests if digest is not None and not has_samples(row, digest)}


def as_lines(text: Text) -> str:
    """A text, or the named texts of a template with several fields, one a line."""
    return "\n".join(f"{name}: {value}" for name, value in text.items()) if isinstance(text, Mapping) else text
