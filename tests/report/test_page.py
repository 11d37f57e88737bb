"""A report can be made without the command line: its rows are typed, its text the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.said import Captured, json_of, output
from helpers.synthetic import THREE, classic, mmlu, report, seeds, write

from deepthink_cli.errors import InputError
from deepthink_cli.report.formats import markdown


def test_a_report_holds_rows_and_the_text_around_them(tmp_path: Path) -> None:
    page = report([write(tmp_path / "run", seeds(THREE))])
    (line,) = page.rows
    assert line.row.thinking.mean == pytest.approx(0.65)
    assert page.records()[0]["thinking_mean"] == line.row.thinking.mean
    assert page.title.startswith("openai-community/gpt2-large, float32")
    assert page.footnotes == ["Inputs evaluated: sst2 100", "Demonstrations (shots): 8"]


def test_a_report_is_what_the_command_prints(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", list(classic([0.1, 0.01], count=2)))
    page = report([folder], iteration=3)
    words = ["report", str(folder), "--at", "3", "--output-format"]
    assert output(capsys, *words, "markdown") == markdown(page)
    assert json_of(capsys, *words, "json")["rows"] == page.records()


def test_tasks_of_large_groups_have_rows_on_request(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", mmlu())
    assert len(report([folder]).rows) == 3
    assert len(report([folder], tasks=True).rows) == 15


def test_every_folder_that_is_not_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        report([tmp_path / "a", tmp_path])
    assert [str(tmp_path / "a") in error.value.messages[0], len(error.value.messages)] == [True, 2]
