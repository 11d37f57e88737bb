"""What notebooks show of reports and evaluations."""

from __future__ import annotations

from pathlib import Path

from conftest import Models, write_reviews
from helpers.synthetic import THREE, report, seeds, write

from deepthink_cli import Scorer, evaluate, load_model, think, tokenize_demonstrations
from deepthink_cli.data.examples import DemonstrationSet


def test_a_report_is_a_table_with_its_legend(tmp_path: Path) -> None:
    shown = report([write(tmp_path / "run", seeds(THREE))])._repr_html_()
    assert "<table>" in shown
    assert "60.0 ± 10.0" in shown
    assert "<p>ICL: plain in-context learning, T = 1." in shown


def test_a_report_escapes_what_it_shows(tmp_path: Path) -> None:
    shown = report([write(tmp_path / "run", seeds(THREE, task="<b>task</b>"))])._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;task&lt;/b&gt;" in shown


def test_an_evaluation_is_a_table_with_a_row_for_each_iteration(
    models: Models, reviews: DemonstrationSet, tmp_path: Path
) -> None:
    engine = load_model(str(models("llama")))
    memories = list(think(engine, tokenize_demonstrations(engine.tokenizer, reviews)))
    rows = write_reviews(tmp_path / "<rows>.jsonl")
    result = evaluate(Scorer.open(memories, calibrate=["contextual"]), rows, engine=engine)
    shown = result._repr_html_()
    assert shown.count("<table>") == 2
    assert shown.count("<tr>") == 2 * (1 + len(memories))
    assert "4 rows, contextual calibration" in shown
    assert "&lt;rows&gt;.jsonl" in shown
    assert "<rows>" not in shown
