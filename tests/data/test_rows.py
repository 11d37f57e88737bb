"""Rows come from files as they are, and what cannot be read is named by file and line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import Row
from deepthink_cli.errors import InputError, Problems


def read(path: Path, content: str | bytes) -> list[Row]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_rows(str(path)))


def refusal(path: Path, content: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(path, content)
    return str(caught.value)


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085"])
def test_an_unusual_line_separator_inside_a_row_does_not_split_it(jsonl: Path, character: str) -> None:
    row = json.dumps({"text": f"one{character}two"}, ensure_ascii=False)
    assert [row.fields["text"] for row in read(jsonl, f"{row}\n{row}\n")] == [f"one{character}two"] * 2


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json", ".JSONL", ""])
def test_every_name_of_json_lines_is_read_as_json_lines(tmp_path: Path, suffix: str) -> None:
    assert read(tmp_path / f"rows{suffix}", '{"a": 1}\n')[0].fields == {"a": 1}


def test_of_very_many_mistakes_twenty_are_shown_and_the_others_counted(jsonl: Path) -> None:
    jsonl.write_text("wrong\n" * 25)
    problems = Problems()
    assert list(read_rows(str(jsonl), problems)) == []
    with pytest.raises(InputError) as caught:
        problems.raise_any()
    assert len(caught.value.messages) == 21
    assert caught.value.messages[-1] == "... and 5 more mistakes like these"


@pytest.mark.parametrize("name", ["gone.jsonl", "a" * 300, '{"text": "' + "typed in place of a path " * 20 + '"}'])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_rows(str(tmp_path / name)))
    assert str(caught.value) == f"{tmp_path / name}: no such file; check the path, or use - for standard input"


def test_an_unknown_suffix_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    message = refusal(tmp_path / "rows.xlsx", "PK")
    known = ".jsonl, .ndjson, .json, .csv, .tsv, .parquet, .arrow, .feather, .txt"
    reason = f"unknown format '.xlsx'; use {known}, or name the format with format"
    assert message == f"{tmp_path}/rows.xlsx: {reason}"


def test_standard_input_is_read_as_json_lines_and_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given").write_text('{"a": "é"}\nwrong\n', encoding="utf-8")
    with open(tmp_path / "given", encoding="utf-8") as given:
        monkeypatch.setattr(sys, "stdin", given)
        rows = read_rows("-")
        assert next(rows) == Row({"a": "é"}, "standard input:1")
        with pytest.raises(InputError, match=r"^standard input:2: not JSON"):
            next(rows)


@pytest.mark.parametrize("rows_before", [0, 1, 3000])
def test_a_csv_in_latin_1_is_named_with_the_line_of_the_wrong_byte(csv: Path, rows_before: int) -> None:
    message = refusal(csv, b"text,label\n" + b"good,yes\n" * rows_before + b"caf\xe9,no\n")
    assert message == f"{csv}:{rows_before + 2}: not UTF-8 (byte 0xe9); save the file as UTF-8"


def test_parquet_rows_are_numbered_through_all_batches(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": list(range(600)), "tags": [["x", "y"]] * 600}), path)
    rows = list(read_rows(str(path)))
    assert [row.fields["n"] for row in rows] == list(range(600))
    assert rows[599] == Row({"n": 599, "tags": ["x", "y"]}, f"{path}:600")
