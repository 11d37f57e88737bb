"""CSV and TSV as programs write them: quotation marks without a meaning, no header, UTF-16."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Note

GLUE = 'sentence\tid\n"a fine start\t1\ndull and long\t2\nthe director said so"\t3\nok\t4\n'


def read(path: Path, content: str, **how: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a file with this content, and what was said of it."""
    path.write_text(content, newline="", encoding="utf-8")
    told: list[Event] = []
    rows = [row.fields for row in read_rows(RowSource(str(path), tell=told.append, **how))]
    return rows, [event.text for event in told if isinstance(event, Note)]


def test_a_tsv_whose_marks_are_text_is_refused_by_its_line_and_read_on_request(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"glue\.tsv:2: quotation marks enclose tabs and line breaks; give no_quotes"):
        read(tmp_path / "glue.tsv", GLUE)
    rows, said = read(tmp_path / "glue.tsv", GLUE, quotes=False)
    assert [row["sentence"] for row in rows] == ['"a fine start', "dull and long", 'the director said so"', "ok"]
    assert said == []


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_cells_that_a_program_has_quoted_come_back(tmp_path: Path, quoting: Any) -> None:
    table = [["text", "label"], ['he said "so"', "a"], ["two\tcells", "b"], ["two\nlines", "c"], ["plain", "d"]]
    written = io.StringIO(newline="")
    csv.writer(written, delimiter="\t", quoting=quoting, lineterminator="\n").writerows(table)
    rows, said = read(tmp_path / "rows.tsv", written.getvalue())
    assert [list(row.values()) for row in rows] == table[1:]
    assert len(said) == 1
    assert "5 lines are 4 rows" in said[0]


def test_a_tsv_without_marks_is_read_without_a_word(tmp_path: Path) -> None:
    assert read(tmp_path / "rows.tsv", 'text\tlabel\n5" disk\tb\nx\ty\n') == (
        [{"text": '5" disk', "label": "b"}, {"text": "x", "label": "y"}],
        [],
    )


def test_a_csv_can_be_read_without_quoting(tmp_path: Path) -> None:
    content = 'text,label\n"a fine start,1\ndull,2\nhe said so",3\n'
    rows, said = read(tmp_path / "rows.csv", content)
    assert len(rows) == 1
    assert "3 lines are 1 row" in said[0]
    rows, said = read(tmp_path / "rows.csv", content, quotes=False)
    assert [row["label"] for row in rows] == ["1", "2", "3"]
    assert said == []


def test_unbalanced_marks_name_the_way_out(tmp_path: Path) -> None:
    for name, content in (("a.csv", 'text,label\n"a,b\n'), ("a.tsv", 'text\tlabel\n"a\tb\n')):
        with pytest.raises(InputError, match=r":2: not .SV .unexpected end of data.; no_quotes reads quotation marks"):
            read(tmp_path / name, content)


def test_columns_without_a_header_are_numbered(tmp_path: Path) -> None:
    for name, content in (("a.csv", "fine; really,pos\nbad,neg\n"), ("a.tsv", "fine; really\tpos\nbad\tneg\n")):
        rows, _ = read(tmp_path / name, content, header=False)
        assert rows == [{"column1": "fine; really", "column2": "pos"}, {"column1": "bad", "column2": "neg"}]


def test_utf_16_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("text\tlabel\ncafé\tgood\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"a\.tsv: not UTF-8, but UTF-16 or UTF-32; save the file as UTF-8"):
        list(read_rows(str(tmp_path / "a.tsv")))
