"""A file's suffix decides how rows are written, and what is written is what was given."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from deepthink_cli.data.rows import read_rows
from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.io.atomic import append, cut, refusals, whole_lines
from deepthink_cli.io.tables import GROUP, Columns, Kind, check_suffix, columns_of, flat, writing_rows

COLUMNS: Columns = {"index": "integer", "label": "text", "scores.a.b": "number", "scores.c": "number", "input": "text"}
ROWS: list[dict[str, Any]] = [
    {"index": 0, "label": 'say "a", b', "scores": {"a.b": -0.1, "c": -2.5}, "input": {"text": "one\ntwo"}},
    {"index": 1, "label": None, "scores": {"a.b": -1e-20, "c": -3}, "input": {"text": "\rx\ty\x0b\u2028é"}},
    {"index": 2, "error": "no text"},
]


def written(path: Path, rows: list[dict[str, Any]], columns: Columns | None = None) -> Path:
    with writing_rows(path, columns) as write:
        for row in rows:
            write([row])
    return path


def cells(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(str(path))]


@pytest.mark.parametrize("name", ["out.jsonl", "out.ndjson", "out", "OUT.JSONL"])
def test_json_lines_hold_the_rows_as_they_are(name: str, tmp_path: Path) -> None:
    assert cells(written(tmp_path / name, ROWS)) == ROWS


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_table_has_a_column_for_each_field_of_a_field(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"out{suffix}", ROWS, {**COLUMNS, "error": "text"})
    first, second, third = cells(path)
    assert list(first) == [*COLUMNS, "error"]
    assert first["label"] == ROWS[0]["label"]
    assert json.loads(second["input"]) == ROWS[1]["input"]
    assert [float(second[name]) for name in ("scores.a.b", "scores.c")] == [-1e-20, -3]
    assert third["error"] == "no text"
    assert third["label"] in (None, "")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_any_text_is_read_back(suffix: str, tmp_path: Path) -> None:
    texts = ["a\rb", "a\nb", "a\r\nb", 'q"', ",", "\t", "é\u2028", "=1+1", " x "]
    path = written(
        tmp_path / f"out{suffix}",
        [{"n": n, "text": text} for n, text in enumerate(texts)],
        {"n": "integer", "text": "text"},
    )
    assert [row["text"] for row in cells(path)] == texts


def test_csv_lines_end_with_a_line_feed_and_values_are_those_of_json(tmp_path: Path) -> None:
    row = {"a": True, "b": None, "c": 0.1, "d": [1, "é"], "e": 2**70}
    path = written(tmp_path / "out.csv", [row], columns_of([row]))
    assert path.read_bytes().count(b"\r") == 0
    assert list(csv.reader(path.open(newline="")))[1] == ["true", "", "0.1", '[1, "é"]', str(2**70)]


def test_a_parquet_file_has_types_row_groups_and_says_what_it_is(tmp_path: Path) -> None:
    rows = [{"n": n, "x": n / 2, "yes": n % 2 == 0, "big": 2**70, "mixed": n or "none"} for n in range(GROUP + 1)]
    with writing_rows(tmp_path / "out.parquet", columns_of(rows), about={"made by": "test"}) as write:
        write(rows)
    file = pyarrow.parquet.ParquetFile(tmp_path / "out.parquet")
    assert file.num_row_groups == 2
    assert [str(field.type) for field in file.schema_arrow] == ["int64", "double", "bool", "string", "string"]
    assert file.schema_arrow.metadata[b"made by"] == b"test"
    assert file.read().to_pylist()[3] == {"n": 3, "x": 1.5, "yes": False, "big": str(2**70), "mixed": "3"}


def test_a_parquet_file_does_not_depend_on_how_rows_come(tmp_path: Path) -> None:
    rows = [{"n": n} for n in range(3 * GROUP)]
    columns: dict[str, Kind] = {"n": "integer"}
    one_by_one = written(tmp_path / "a.parquet", rows, columns).read_bytes()
    with writing_rows(tmp_path / "b.parquet", columns) as write:
        write(rows)
    assert (tmp_path / "b.parquet").read_bytes() == one_by_one


@pytest.mark.parametrize("name", ["out.xlsx", "out.txt", "out.json"])
def test_an_unknown_suffix_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(InputError, match=r"--samples out\..*: unknown format .*\.jsonl, .*\.csv, \.tsv or \.parquet"):
        check_suffix(name, "--samples")


def test_an_output_is_not_compressed() -> None:
    with pytest.raises(InputError, match=r"out\.csv\.gz: outputs are not compressed; end the name in .*, and compress"):
        check_suffix("out.csv.gz")


def test_a_value_without_a_column_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a row holds 'scores\.d'"):
        flat({"scores": {"d": 1.0}}, COLUMNS)
    with pytest.raises(InputError):
        written(tmp_path / "out.csv", [{"other": 1}], COLUMNS)
    assert list(tmp_path.iterdir()) == []


def test_rows_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append(path, ["one\n", "zwei é\n"])
    append(path, ["three\n"])
    assert path.read_text(encoding="utf-8") == "one\nzwei é\nthree\n"


@pytest.mark.parametrize("whole", [b"", b"one\n", b"one\ntwo\n", b"a" * 70_000 + b"\n"])
@pytest.mark.parametrize("torn", [b"", b'{"index": 9', b"b" * 140_000])
def test_a_line_that_was_not_written_to_its_end_is_cut_off(whole: bytes, torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole + torn)
    cut(path, whole_lines(path))
    assert path.read_bytes() == whole


def test_an_error_says_how_the_work_continues(tmp_path: Path) -> None:
    with (
        pytest.raises(DeepThinkError) as raised,
        refusals(Problem.of("output", "out"), "; the same command continues it"),
    ):
        append(tmp_path / "missing" / "rows.jsonl", ["one\n"])
    assert (
        str(raised.value) == "output out: cannot be written: No such file or directory; the same command continues it"
    )
