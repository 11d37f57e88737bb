"""What holds of every file: what others wrote comes back with its lines, and no bytes bring more than an InputError."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import typer
import yaml
from helpers.tiny import MINE
from hypothesis import assume, given
from hypothesis import strategies as st

from deepthink_cli.cli.data_options import DataDir, PromptArguments, TaskNames
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.data.examples import read_demonstrations, read_queries
from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.io.documents import read_document
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.tasks.files import validated

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
HEADER = st.lists(
    CELL.filter(lambda name: name and name == name.strip() and "\ufeff" not in name),
    min_size=1,
    max_size=4,
    unique=True,
)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | st.integers() | FLOAT | TEXT
VALUE = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
BLANK = st.lists(st.sampled_from(["", " ", "\t"]), max_size=2)
COLUMNS = {
    "text": (pyarrow.string(), TEXT),
    "n": (pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    "x": (pyarrow.float64(), FLOAT),
    "yes": (pyarrow.bool_(), st.booleans()),
    "tags": (pyarrow.list_(pyarrow.string()), st.lists(TEXT, max_size=3)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("read")


def rows_of(path: Path) -> list[tuple[dict[str, Any], str]]:
    return [(row.fields, row.where) for row in read_rows(str(path))]


@given(st.lists(st.tuples(BLANK, st.dictionaries(TEXT, VALUE, max_size=4), st.booleans()), min_size=1), st.data())
def test_json_lines_come_back_with_their_lines(
    folder: Path, drawn: list[tuple[list[str], dict[str, Any], bool]], data: st.DataObject
) -> None:
    lines, expected = [], []
    for blank, fields, escaped in drawn:
        lines += [*blank, json.dumps(fields, ensure_ascii=escaped)]
        expected.append((fields, f"{folder}/rows.jsonl:{len(lines)}"))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    content = data.draw(st.sampled_from(["", "\ufeff"])) + end.join(lines) + data.draw(st.sampled_from(["", end]))
    (folder / "rows.jsonl").write_bytes(content.encode())
    assert rows_of(folder / "rows.jsonl") == expected


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
@given(HEADER, st.data())
def test_separated_cells_come_back_with_their_lines(
    folder: Path, suffix: str, delimiter: str, header: list[str], data: st.DataObject
) -> None:
    path = folder / f"rows.{suffix}"
    table = data.draw(st.lists(st.lists(CELL, min_size=len(header), max_size=len(header)), min_size=1, max_size=5))
    assume(delimiter == "," or not any({"\t", "\n"} <= set(cell) for cells in table for cell in cells))
    # With \n alone the library leaves a cell with \r unquoted.
    quoting, end = data.draw(
        st.sampled_from([(csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r\n")])
    )
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator=end).writerow(header)
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end)
    expected = []
    for cells in table:
        line = 1 + len(re.findall("\r\n|\r|\n", text.getvalue()))
        expected.append((dict(zip(header, cells, strict=True)), f"{path}:{line}"))
        writer.writerow(cells)
    path.write_bytes((data.draw(st.sampled_from(["", "\ufeff"])) + text.getvalue()).encode())
    read = read_rows(str(path))
    assert [(row.fields, row.where) for row in read] == expected


LINE = CELL.filter(lambda cell: cell.strip() and not set(cell) & set("\t\n\r\ufeff"))


@given(st.integers(1, 3), st.data())
def test_no_line_of_a_tsv_without_quoting_is_lost(folder: Path, columns: int, data: st.DataObject) -> None:
    path, cells = folder / "plain.tsv", st.sampled_from(['"', '"a', 'b"', '"c"']) | LINE
    table = data.draw(st.lists(st.lists(cells, min_size=columns, max_size=columns), min_size=1, max_size=6))
    names = [f"name {number}" for number in range(columns)]
    path.write_text("".join("\t".join(row) + "\n" for row in [names, *table]), newline="")
    assert [list(row.fields.values()) for row in read_rows(RowSource(str(path), quotes=False))] == table


@given(st.lists(st.dictionaries(TEXT, VALUE, max_size=4), min_size=1), st.none() | st.integers(0, 3), st.booleans())
def test_a_json_array_comes_back(folder: Path, rows: list[dict[str, Any]], indent: int | None, escaped: bool) -> None:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows, indent=indent, ensure_ascii=escaped), encoding="utf-8")
    assert [fields for fields, _ in rows_of(path)] == rows


@given(st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1), st.integers(1, 300), st.data())
def test_parquet_comes_back_with_its_row_numbers(
    folder: Path, names: set[str], count: int, data: st.DataObject
) -> None:
    path = folder / "rows.parquet"
    few = {name: data.draw(st.lists(st.none() | COLUMNS[name][1], min_size=1, max_size=4)) for name in sorted(names)}
    columns = {name: [values[n % len(values)] for n in range(count)] for name, values in few.items()}
    table = pyarrow.table({name: pyarrow.array(values, COLUMNS[name][0]) for name, values in columns.items()})
    pyarrow.parquet.write_table(table, path, row_group_size=data.draw(st.integers(1, count)))
    rows = [{name: values[n] for name, values in columns.items()} for n in range(count)]
    assert rows_of(path) == [(row, f"{path}:{n}") for n, row in enumerate(rows, start=1)]


# ---- Bytes that nobody meant ----

GOOD = {
    "jsonl": b'{"text": "caf\xc3\xa9", "label": "yes"}\n{"text": "x", "label": "no", "candidates": ["no", "yes"]}\n',
    "json": b'[{"text": "caf\xc3\xa9", "label": "yes"},\n{"text": "x", "label": "no", "candidates": ["no", "yes"]}]\n',
    "csv": b'text,label\n"caf\xc3\xa9, ""x""",yes\ny,no\n',
    "tsv": b"text\tlabel\ncaf\xc3\xa9\tyes\ny\tno\n",
    "toml": b'eta = 0.5\nkeep = [1, 2]\nlabels = ["a", "b, c"]\n[table]\nday = 2024-05-01\n',
    "yaml": yaml.safe_dump(MINE, allow_unicode=True).encode() + b"other: &a {x: 1}\nmore: {<<: *a, y: !!int 3}\n",
}
JSON = ["{", "}", "[", "]", '"', ",", ":", '"text"', '"label"', "\\u", "1e999", "NaN", "null", "\n"]
TOML = r"""eta = [ ] { } ''' " 1 . - _ inf true 2024-05-01 T : \u # ,"""
YAML = r"""a : [ ] { } , ' " | > << # % 0x 0b_ 1e3 1:2 2024-13-01 \u \x = ~ yes .inf --- ... @"""
BLANK = (": ", "\n", "  ", "- ", "&a ", "*a", "!!int ", "!!timestamp ", "!x ", "? ", "\t")  # marks of YAML with blanks
BITS = {
    "jsonl": [*JSON, '"candidates"', "\\ud800", "-0"],
    "json": [*JSON, " "],
    "csv": [",", ";", "\t", '"', '""', "\n", "\r", "text", "label", " ", "\0", "x"],
    "tsv": ["\t", '"', "\n", "\r", "text", "label", " ", "x"],
    "toml": [*TOML.split(), '"' * 3, "\n"],
    "yaml": [*YAML.split(), *BLANK],
}


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The content with a few stretches of it replaced."""

    def replaced(cuts: list[tuple[int, int, bytes]]) -> bytes:
        changed = content
        for place, length, new in cuts:
            changed = changed[:place] + new + changed[place + length :]
        return changed

    place = st.integers(0, len(content))
    return st.lists(st.tuples(place, st.integers(0, 4), st.binary(max_size=4)), min_size=1, max_size=4).map(replaced)


def any_bytes(kind: str) -> st.SearchStrategy[bytes]:
    """Any bytes, a good file with holes, and the format's own words in any order."""
    words = st.lists(st.sampled_from(BITS[kind]), max_size=30).map(lambda bits: "".join(bits).encode())
    return st.binary(max_size=60) | damaged(GOOD[kind]) | words


def refusals(read: Callable[[], object]) -> tuple[str, ...]:
    """What a reader says, where it refuses."""
    try:
        read()
    except InputError as error:
        return error.messages
    return ()


def read_as_rows(path: Path) -> None:
    template = Template("{text}: {label}")
    said = refusals(lambda: read_demonstrations(str(path)))
    said += refusals(lambda: list(read_queries(str(path), template, ["yes", "no"], labelled=True)))
    assert all(str(path) in message for message in said)


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv"])
@given(st.data())
def test_no_bytes_bring_more_than_an_input_error(folder: Path, kind: str, data: st.DataObject) -> None:
    path = folder / f"bytes.{kind}"
    path.write_bytes(data.draw(any_bytes(kind)))
    read_as_rows(path)


@pytest.mark.parametrize("compress", [gzip.compress, lambda content: pyarrow.compress(content, "zstd", asbytes=True)])
@given(st.data())
def test_no_damage_to_compressed_rows_brings_more_than_an_input_error(
    folder: Path, compress: Callable[[bytes], bytes], data: st.DataObject
) -> None:
    content = compress(GOOD["csv"])
    path = folder / ("bytes.csv.gz" if content[:2] == b"\x1f\x8b" else "bytes.csv.zst")
    path.write_bytes(data.draw(damaged(content) | st.integers(0, len(content)).map(lambda end: content[:end])))
    read_as_rows(path)


@pytest.fixture(scope="module")
def parquet(folder: Path) -> bytes:
    """A small table of everything that a row may hold."""
    columns = {"text": ["café", "x"], "label": ["yes", "no"], "candidates": [["yes", "no"]] * 2, "n": [0.5, None]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "good.parquet", compression="none", store_schema=False)
    return (folder / "good.parquet").read_bytes()


@given(st.data())
def test_no_damage_to_a_parquet_file_brings_more_than_an_input_error(
    folder: Path, parquet: bytes, data: st.DataObject
) -> None:
    path = folder / "bytes.parquet"
    path.write_bytes(data.draw(damaged(parquet) | st.integers(0, len(parquet)).map(lambda end: parquet[:end])))
    read_as_rows(path)


@pytest.mark.parametrize("kind", ["toml", "yaml"])
@given(st.data())
def test_no_bytes_of_a_document_bring_more_than_an_input_error(folder: Path, kind: str, data: st.DataObject) -> None:
    path = folder / f"bytes.{kind}"
    path.write_bytes(data.draw(any_bytes(kind)))
    refused_by_line(path, lambda: read_document(path))


def refused_by_line(path: Path, read: Callable[[], object]) -> None:
    """Read; what is refused is refused by file:line, but for the count of those beyond twenty."""
    said = [message for message in refusals(read) if not message.startswith("... and ")]
    assert all(re.match(rf"{re.escape(str(path))}:[1-9]", message) for message in said)


WRONG = VALUE | st.sampled_from(
    ["{", "{0}", "{text} {label}", "(", "(?P<name>.)(?P<text>.)", "train", "test", -1, 2**70]
)


@given(
    st.dictionaries(
        st.sampled_from([*MINE, "candidates", "splits", "hub", "groups", "members", "x"]), WRONG, min_size=1
    ),
    st.data(),
)
def test_no_value_of_a_tasks_field_brings_more_than_an_input_error(
    folder: Path, changes: dict[str, Any], data: st.DataObject
) -> None:
    path = folder / "task.yaml"
    content = {**MINE, **changes}
    if data.draw(st.booleans()):
        known = st.sampled_from(
            ["rows", "category", "shots", "title", "example", "column", "write", "options", "words", "line", "pattern"]
        )
        content[data.draw(st.sampled_from(["members", "fields", "candidates", "answer"]))] = data.draw(
            st.dictionaries(known, WRONG | st.dictionaries(known, WRONG, max_size=2), max_size=3)
        )
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    refused_by_line(path, lambda: validated(path))


app = typer.Typer()


@app.command()
@grouped
def command(
    method: Given[MethodOptions],
    model: Given[ModelOptions],
    prompt: PromptArguments,
    common: CommonArguments,
    task: TaskNames = None,
    data_dir: DataDir = None,
) -> None:
    assert isinstance(method.eta, str)
    assert isinstance(model.offline, bool)


@given(
    st.dictionaries(
        st.sampled_from(["eta", "dtype", "labels", "offline", "task", "data-dir", "data_dir", "x", "config"]),
        WRONG,
        min_size=1,
    )
)
def test_no_value_of_an_option_brings_more_than_an_input_error(folder: Path, values: dict[str, Any]) -> None:
    path = folder / "options.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    refused_by_line(path, lambda: app(["--config", str(path)], standalone_mode=False))
