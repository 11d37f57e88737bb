"""Records of speed: a table is printed and kept as it grows, and the page shows what was kept."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path

import pytest
from helpers.said import Captured

from benchmarks.record import Table, commit_of, markdown, parser

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a script is told to write."""
    words = ["/where/ever/script.py", "--record", str(tmp_path / "new" / "a.json"), "--data-dir", "/home/me/rows"]
    monkeypatch.setattr("sys.argv", words)
    return Path(words[2])


def table(path: Path, part: str = "") -> Table:
    """A table with a ratio."""
    args = parser("A script.").parse_args(["--record", str(path)])
    return Table(args, "Title", ("model", "slow", "fast"), ("slow / fast",), "Seconds.", part)


def test_a_row_is_printed_and_in_the_file_as_soon_as_it_is_added(path: Path, capsys: Captured) -> None:
    growing = table(path)
    for number, row in enumerate([("a", 3.0, 2.0), ("b", None, 1234.5678)], 1):
        growing.add(*row)
        record = json.loads(path.read_text(encoding="utf-8"))
        assert len(record["rows"]) == number
    assert record["rows"] == [["a", 3.0, 2.0], ["b", None, 1235.0]]
    assert record["command"] == "python benchmarks/script.py --data-dir rows"
    assert {"date", "commit", "machine"} <= record.keys()
    shown = [
        "| model | slow | fast | slow / fast |",
        "|---|--:|--:|--:|",
        "| a | 3 | 2 | 1.5 |",
        "| b | - | 1,235 | - |",
    ]
    assert capsys.readouterr().out.split("\n") == ["", *shown, ""]
    assert list(markdown(record)) == shown


def test_a_part_has_a_file_of_its_own(path: Path) -> None:
    table(path, "more").add("a", 1.0, 2.0)
    assert [each.name for each in path.parent.iterdir()] == ["a-more.json"]


def test_a_record_that_was_written_before_does_not_mark_the_commit_as_changed(tmp_path: Path) -> None:
    records = tmp_path / "scripts" / "records"
    records.mkdir(parents=True)
    assert commit_of(records) == ""
    code, record = tmp_path / "code.py", records / "a.json"
    code.touch()
    record.touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    commit = commit_of(records)
    assert len(commit) == 8
    record.write_text("{}", encoding="utf-8")
    assert commit_of(records) == commit
    code.write_text("1", encoding="utf-8")
    assert commit_of(records) == f"{commit}-dirty"


def test_the_page_has_a_section_with_the_conditions_of_every_record() -> None:
    names = runpy.run_path(str(ROOT / "docs" / "build_measurements.py"))
    record = {"title": "Title", "note": "Seconds.", "command": "python it.py", "date": "2026-01-02", "commit": "abc"}
    record |= {"machine": {"processor": "P", "cores": 2, "threads": 1, "torch": "2"}, "columns": ["n"], "rows": [[1]]}
    page = names["page"](iter([record]))
    assert (
        "\n## Title\n\nSeconds.\n\n`python it.py`, P, 2 cores, 1 thread, torch 2, 2026-01-02, commit abc.\n\n| n |"
        in page
    )
    record |= {
        "columns": ["n", "slow", "fast"],
        "ratios": ["n / slow", "n / fast"],
        "rows": [[3, None, 2], [4, None, None]],
    }
    assert "\n| n | fast | n / fast |\n|--:|--:|--:|\n| 3 | 2 | 1.5 |\n| 4 | - | - |\n" in names["page"](iter([record]))
