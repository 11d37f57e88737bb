"""Writes the Parquet files of the corpus, whole and broken ones."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

CORPUS = Path(__file__).parent
TEXTS, LABELS = ["a warm and funny film", "a dull and lifeless mess"], ["positive", "negative"]


def table(name: str, columns: dict[str, Any]) -> None:
    """Write columns, lists or arrays, as a small Parquet file."""
    whole = pyarrow.table({key: pyarrow.array(value) for key, value in columns.items()})
    written(CORPUS / name, whole)


def written(path: Path, whole: pyarrow.Table) -> bytes:
    """Write a table without what makes it large; returns its bytes."""
    pyarrow.parquet.write_table(
        whole, path, compression="none", store_schema=False, write_statistics=False, use_dictionary=False
    )
    return path.read_bytes()


def broken_text(*values: bytes) -> pyarrow.Array:
    """A text column that holds these bytes, UTF-8 or not."""
    binary = pyarrow.array(values, pyarrow.binary())
    return pyarrow.StringArray.from_buffers(len(binary), binary.buffers()[1], binary.buffers()[2])


def demonstrations() -> None:
    for name, text in {
        "null": ["a warm and funny film", None],
        "empty-text": ["a warm and funny film", " "],
        "nan": [0.5, math.nan],
        "infinity": [0.5, math.inf],
        "list": [["a", "warm", "film"], ["far", "too", "long"]],
        "struct": [{"en": "a warm film"}, {"en": "far too long"}],
        "bytes": [b"a warm and funny film", b"far too long"],
        "dates": [datetime.date(2024, 5, 1), datetime.date(2024, 5, 2)],
        "decimals": [Decimal("1.50"), Decimal("2.50")],
        "not-utf-8": broken_text(b"a warm and funny film", b"caf\xe9"),
        "year-60000": pyarrow.array([0, 60_000 * 365 * 86_400], pyarrow.timestamp("s")),
    }.items():
        table(f"demonstrations/{name}.parquet", {"text": text, "label": LABELS})
    table("demonstrations/null-label.parquet", {"text": TEXTS, "label": ["positive", None]})
    table("demonstrations/one-label.parquet", {"text": TEXTS, "label": ["positive", "positive "]})
    table("demonstrations/one-column.parquet", {"text": TEXTS})
    table("demonstrations/no-rows.parquet", {"text": pyarrow.array([], pyarrow.string()), "label": []})
    table("demonstrations/dot-in-a-name.parquet", {"review.text": TEXTS, "label": LABELS})
    table("demonstrations/candidates-in-a-text.parquet", {"text": TEXTS, "label": LABELS, "candidates": ["a,b", "c,d"]})
    table(
        "demonstrations/null-candidate.parquet",
        {"text": TEXTS, "label": LABELS, "candidates": [["positive", "negative"], ["negative", None]]},
    )
    twice = pyarrow.Table.from_arrays([pyarrow.array(TEXTS)] * 2 + [pyarrow.array(LABELS)], ["text", "text", "label"])
    written(CORPUS / "demonstrations/name-twice.parquet", twice)
    whole = written(CORPUS / "demonstrations/cut.parquet", pyarrow.table({"text": TEXTS, "label": LABELS}))
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "without-its-start": whole[40:],
        "start-only": b"PAR1",
        "start-and-end-only": b"PAR1" + bytes(100) + b"PAR1",
        "empty": b"",
        "comma-separated": b"text,label\na warm and funny film,positive\n",
        "broken-footer": whole[:-60] + bytes(52) + whole[-8:],
        "broken-page": whole[:4] + bytes(40) + whole[44:],
    }.items():
        (CORPUS / f"demonstrations/{name}.parquet").write_bytes(content)


def inputs() -> None:
    for name, columns in {
        "other-column": {"text": TEXTS},
        "null": {"review": ["a warm and funny film", None]},
        "list": {"review": [["a", "warm", "film"], ["far", "too", "long"]]},
        "nan": {"review": [0.5, math.nan]},
        "not-utf-8": {"review": broken_text(b"a warm and funny film", b"\xff\xfe")},
        "candidate-twice": {"review": TEXTS, "candidates": [["a", "b"], ["a", "a"]]},
        "no-candidates": {"review": TEXTS, "candidates": [["a", "b"], None]},
    }.items():
        table(f"inputs/{name}.parquet", columns)
    table("inputs/late.parquet", {"review": ["a warm film"] * 299 + [""]})
    (CORPUS / "inputs/text.parquet").write_text('{"review": "a warm and funny film"}\n')


if __name__ == "__main__":
    demonstrations()
    inputs()
