"""Every format from files and from standard input: what is recognised is read, an error names what is not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from deepthink_cli.data.examples import read_demonstrations, read_pool, read_queries
from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, Problems

ROWS = [{"text": "one, two", "label": "good"}, {"text": "drei; vier\nfünf", "label": "bad"}]
REVIEW = Template("Review: {review}\nSentiment: {label}")
PAIR = Template("{premise} {hypothesis} {label}")


def table(delimiter: str) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["text", "label"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def parquet() -> bytes:
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), stream)
    return stream.getvalue()


def zstd(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


CONTENT: dict[str, bytes] = {
    "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "json": json.dumps(ROWS, ensure_ascii=False, indent=2).encode(),
    "csv": table(","),
    "tsv": table("\t"),
    "parquet": parquet(),
}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstd}


def fields(source: str | RowSource) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(source)]


def refusal(path: Path, content: bytes, row_format: Any = None) -> str:
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_rows(RowSource(str(path), row_format)))
    return str(caught.value).removeprefix(str(path))


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], object]]:
    """Gives bytes on standard input."""
    path = tmp_path / "stdin"
    path.touch()
    with open(path, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield path.write_bytes


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", CONTENT)
def test_every_format_is_read_from_compressed_files_by_its_suffix(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"rows.{name}{suffix}"
    path.write_bytes(COMPRESS[suffix](CONTENT[name]))
    assert fields(str(path)) == ROWS


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", CONTENT)
def test_every_format_is_read_from_standard_input_if_it_is_named(
    typed: Callable[[bytes], object], name: Any, suffix: str
) -> None:
    typed(COMPRESS[suffix](CONTENT[name]))
    assert fields(RowSource("-", name)) == ROWS


def test_a_parquet_file_is_read_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(CONTENT["parquet"])
    with os.fdopen(reading, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert fields(RowSource("-", "parquet")) == ROWS


def test_a_named_format_overrides_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(CONTENT["csv"])
    assert fields(RowSource(str(tmp_path / "rows.txt"), "csv")) == ROWS


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match="format xml: unknown format; use csv, tsv, jsonl, json, parquet, txt"):
        RowSource("-", "xml")  # type: ignore[arg-type]


def test_semicolons_separate_cells_if_the_header_has_no_comma(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(table(";"))
    assert fields(str(tmp_path / "rows.csv")) == ROWS


def test_a_quoted_comma_in_a_header_does_not_separate_cells(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('"text, in full";label\none, two;good\n')
    assert fields(str(tmp_path / "rows.csv")) == [{"text, in full": "one, two", "label": "good"}]


def test_rows_of_an_array_name_the_line_where_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('\ufeff\n[\n{"a": 1}, {"a":\n2},\n\n{"a": 3}\n]\n', encoding="utf-8")
    assert [(row.fields["a"], row.where) for row in read_rows(str(path))] == [
        (1, f"{path}:3"),
        (2, f"{path}:3"),
        (3, f"{path}:6"),
    ]


def test_wrong_rows_of_an_array_are_collected_while_the_good_ones_go_on(tmp_path: Path) -> None:
    path, problems = tmp_path / "rows.json", Problems()
    path.write_text('[{"a": 1},\n12345, {"a": NaN}, {"b": 1, "b": 1},\n{"a": 2}]')
    assert [row.fields["a"] for row in read_rows(str(path), problems)] == [1, 2]
    assert [message.removeprefix(str(path))[:24] for message in [str(each) for each in problems.found]] == [
        ":2: not an object: 12345",
        ":2: NaN is not a finite ",
        ":2: field 'b' is duplica",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", ": no rows; give at least one"),
        (b'[{"a": 1}', ":1: not JSON (the array is not closed; is the file complete?)"),
        (b'[{"a": 1},\n{"a": ', ":2: not JSON (Expecting value)"),
        (b'[{"a": 1},\n]', ":2: not JSON (Expecting value)"),
        (b'[{"a": 1}\n{"a": 2}]', ':2: not JSON (a comma or ] expected: {"a": 2}])'),
        (b'[{"a": 1}]\n{}', ":2: not JSON (text after the array)"),
        (b"[" * 100_000, ":1: not JSON (nested too deeply)"),
        (b'[\n{"a": "caf\xe9"}]', ":2: not UTF-8 (byte 0xe9); save the file as UTF-8"),
        (
            b'{\n"a": 1\n}',
            ":1: not JSON (Expecting property name enclosed in double quotes): {; write one object a line, ",
        ),
    ],
)
def test_a_document_that_is_no_array_of_objects_is_named_with_its_line(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    assert refusal(tmp_path / "rows.json", content).startswith(reason)


@pytest.mark.parametrize(
    ("name", "before", "repeated"),
    [
        ("rows.json.gz", b'[{"a": "', b"x"),
        ("rows.jsonl", b'{"a": "', b"x"),
        ("rows.jsonl.gz", b"", b" "),
        ("rows.txt", b"a line\n", b"x"),
        ("rows.csv", b"a,b\n1,2\n", b"x"),
        ("rows.csv.gz", b"a,b\n1,2\n", b"x,"),
        ("rows.csv", b'a,b\n1,"', b"x\n"),
        ("rows.tsv", b"", b"\n"),
    ],
)
def test_a_row_has_a_limit_before_it_is_in_memory(
    name: str, before: bytes, repeated: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.data.formats.lines.MAX_ROW", 100_000, raising=False)
    content, path = before + repeated * (2**23 // len(repeated)), tmp_path / name
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    del content
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r": an? (row is|array) longer than 100,000 (characters|bytes); "):
            list(read_rows(str(path)))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", CONTENT["parquet"], ": a Parquet file; use the suffix .parquet or format parquet"),
        ("a.csv", b"PK\x03\x04rest", ": a ZIP archive or a spreadsheet; save it as CSV"),
        ("a.csv.xz", b"\xfd7zXZ", ": .xz files are not read; decompress it, or use .gz or .zst"),
        ("a.csv.gz", CONTENT["csv"], ": damaged gzip data (zlib inflate failed: incorrect header check); copy"),
        ("a.csv.gz", gzip.compress(CONTENT["csv"])[:-9], ": damaged gzip data (Truncated compressed stream"),
        ("a.csv.zst", zstd(CONTENT["csv"])[:-1], ": damaged zstd data (Truncated compressed stream)"),
        ("a.csv.zst", CONTENT["csv"], ": damaged zstd data (ZSTD decompress failed"),
        ("a.parquet.gz", gzip.compress(b"PAR1"), ": not a Parquet file ("),
    ],
    ids=lambda value: "content" if isinstance(value, bytes) else value,
)
def test_a_file_of_another_kind_and_damaged_data_are_one_line(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    message = refusal(tmp_path / name, content)
    assert message.startswith(reason)
    assert "\n" not in message


def test_data_that_are_compressed_without_saying_so_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(gzip.compress(CONTENT["csv"]))
    assert fields(str(tmp_path / "rows.csv")) == ROWS


def test_standard_input_of_another_format_names_the_option(typed: Callable[[bytes], object]) -> None:
    typed(CONTENT["csv"])
    with pytest.raises(InputError, match=r"^standard input:1: not JSON .* or name the format with format \(csv, tsv"):
        list(read_rows("-"))


def test_every_line_of_a_text_file_is_a_query_of_the_only_text_field(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(b'\xef\xbb\xbf one, "two"\r\n\r\n{"text": 3}\n')
    queries = list(read_queries(str(path), REVIEW, ["good", "bad"]))
    assert [query.fields for query in queries] == [{"review": 'one, "two"'}, {"review": '{"text": 3}'}]
    assert [query.where for query in queries] == [f"{path}:1", f"{path}:3"]


def test_a_text_file_cannot_fill_several_fields(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("one\n")
    with pytest.raises(
        InputError, match=r"texts.txt: a line of a .txt file fills one field, the template has premise, h"
    ):
        list(read_queries(str(tmp_path / "texts.txt"), PAIR, ["yes", "no"]))


@pytest.mark.parametrize(
    "read",
    [read_demonstrations, read_pool, lambda path: list(read_queries(path, REVIEW, ["good", "bad"], labelled=True))],
)
def test_a_text_file_has_no_labels(tmp_path: Path, read: Callable[[str], object]) -> None:
    (tmp_path / "texts.txt").write_text("one\n")
    with pytest.raises(
        InputError, match=r"a \.txt file has texts without labels; give JSON Lines, CSV, TSV or Parquet"
    ):
        read(str(tmp_path / "texts.txt"))


@pytest.mark.parametrize("rows", [b"\n", b'{"review": "a"}\n'], ids=["blank lines", "short rows"])
def test_a_small_compressed_file_of_very_many_rows_is_refused(
    rows: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.data.source._MAX_BYTES", 2**18)
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(zstd(rows * (2**22 // len(rows))))
    assert path.stat().st_size < 1_000
    with pytest.raises(InputError, match=r"rows.jsonl.zst: over .* of zstd data from so small a file"):
        for _ in read_rows(str(path)):
            pass


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085"])
def test_an_unusual_line_separator_inside_a_row_does_not_split_it(tmp_path: Path, character: str) -> None:
    row, path = {"text": f"one{character}two"}, tmp_path / "rows.jsonl"
    path.write_text((json.dumps(row, ensure_ascii=False) + "\n") * 2, encoding="utf-8")
    assert fields(str(path)) == [row] * 2


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json", ".JSONL", ""])
def test_every_name_of_json_lines_is_read_as_json_lines(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"rows{suffix}").write_text('{"a": 1}\n')
    assert fields(str(tmp_path / f"rows{suffix}")) == [{"a": 1}]


def test_of_very_many_mistakes_twenty_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("wrong\n" * 25)
    problems = Problems()
    assert list(read_rows(str(tmp_path / "rows.jsonl"), problems)) == []
    with pytest.raises(InputError) as caught:
        problems.raise_any()
    assert len(caught.value.messages) == 21
    assert caught.value.messages[-1] == "... and 5 more mistakes like these"


@pytest.mark.parametrize("name", ["gone.jsonl", "a" * 300, '{"text": "' + "typed in place of a path " * 20 + '"}'])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_rows(str(tmp_path / name)))
    assert str(caught.value) == f"{tmp_path / name}: no such file; check the path, or use - for standard input"
    (tmp_path / "gnoe.jsonl").touch()
    with pytest.raises(InputError, match=r"no such file; did you mean .*gnoe\.jsonl"):
        list(read_rows(str(tmp_path / "gone.jsonl")))


def test_an_unknown_suffix_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    known = ".jsonl, .ndjson, .json, .csv, .tsv, .parquet, .txt"
    reason = f": unknown format '.xlsx'; use {known}, or name the format with format"
    assert refusal(tmp_path / "rows.xlsx", b"PK") == reason


def test_standard_input_is_read_as_json_lines_and_called_by_its_name(typed: Callable[[bytes], object]) -> None:
    typed('{"a": "é"}\nwrong\n'.encode())
    rows = read_rows("-")
    assert next(rows) == Row({"a": "é"}, "standard input:1")
    with pytest.raises(InputError, match=r"^standard input:2: not JSON"):
        next(rows)


@pytest.mark.parametrize("rows_before", [0, 1, 3000])
def test_a_csv_in_latin_1_is_named_with_the_line_of_the_wrong_byte(tmp_path: Path, rows_before: int) -> None:
    message = refusal(tmp_path / "rows.csv", b"text,label\n" + b"good,yes\n" * rows_before + b"caf\xe9,no\n")
    assert message == f":{rows_before + 2}: not UTF-8 (byte 0xe9); save the file as UTF-8"


def test_parquet_rows_are_numbered_through_all_batches(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": list(range(600)), "tags": [["x", "y"]] * 600}), path)
    rows = list(read_rows(str(path)))
    assert [row.fields["n"] for row in rows] == list(range(600))
    assert rows[599] == Row({"n": 599, "tags": ["x", "y"]}, f"{path}:600")
