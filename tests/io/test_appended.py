"""Files to which rows are only added: what a killed process has left is cut off, and the rest stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepthink_cli.errors import DeepThinkError, Problem
from deepthink_cli.io.atomic import append, cut, refusals, whole_lines


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
        refusals(Problem.of("output", "out"), "the same command continues it"),
    ):
        append(tmp_path / "missing" / "rows.jsonl", ["one\n"])
    assert (
        str(raised.value) == "output out: cannot be written: No such file or directory; the same command continues it"
    )
