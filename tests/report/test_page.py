"""A report can be made without the command line: its rows are typed, its text the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Models, readings_of, write_reviews
from helpers.said import Captured, json_of, output
from helpers.synthetic import HOSTILE, THREE, classic, report, seeds, write

from deepthink_cli import Scorer, evaluate, load_model
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.report.registry import markdown


def test_a_report_holds_rows_and_the_text_around_them(tmp_path: Path) -> None:
    shown = report([write(tmp_path / "run", seeds(THREE))])
    (line,) = shown.rows
    assert line.thinking.mean == pytest.approx(0.65)
    assert shown.records()[0]["thinking_mean"] == line.thinking.mean
    assert shown.page.title.startswith("openai-community/gpt2-large, float32")
    assert shown.page.footnotes == ["Inputs evaluated: sst2 100", "Demonstrations (shots): 8"]


def test_a_report_is_what_the_command_prints(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", list(classic([0.1, 0.01], count=2)))
    shown = report([folder], iteration=3)
    words = ["report", str(folder), "--at", "3", "--output-format"]
    assert output(capsys, *words, "markdown") == markdown(shown.page)
    assert json_of(capsys, *words, "json")["rows"] == shown.records()


def test_an_evaluation_is_a_table_with_a_row_for_each_iteration(
    models: Models, reviews: DemonstrationSet, tmp_path: Path
) -> None:
    engine = load_model(str(models("llama")))
    memories = list(readings_of(engine, reviews))
    rows = write_reviews(tmp_path / "<rows>.jsonl")
    result = evaluate(Scorer.open(memories, calibrate=["contextual"]), rows, engine=engine)
    shown = result._repr_html_()
    assert shown.count("<table") == 2
    assert shown.count("<tr") == 2 * (1 + len(memories))
    assert "4 rows, contextual calibration" in shown
    assert "&lt;rows&gt;.jsonl" in shown
    assert "<rows>" not in shown


def test_special_characters_are_escaped_in_markdown() -> None:
    out = markdown(HOSTILE)
    assert r"| \[q\]\|\* |" in out
    assert r"*\<x\>*" in out
    assert out.endswith("- a\\_b\n")
