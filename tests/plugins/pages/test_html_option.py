"""`report -o FILE.html` and `eval --html`: one file."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured, json_of, output
from helpers.small_evidence import write_grid

from deepthink_cli import Scorer, Scoring, evaluate
from deepthink_cli.cli.main import run
from deepthink_cli.plugins.pages.of_evaluation import page_of_evaluation, tables_of
from deepthink_cli.plugins.pages.samples import Samples


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    write_grid(tmp_path / "grid", "continued", seeds=(0,))
    return tmp_path / "grid"


@pytest.fixture
def memory(thought_of: Callable[..., Path], tmp_path: Path) -> Path:
    return thought_of(tmp_path / "mem.safetensors", "llama", "-T", "2", "--keep", "all")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    rows = [{"review": f"film <b>number</b> {n}", "sentiment": ("positive", "negative")[n % 2]} for n in range(6)]
    return write_rows(tmp_path / "labelled.jsonl", rows)


def column(file: Path, name: str) -> Any:
    """A JSON column of a page's samples."""
    packed = re.findall(rf'data-column="{name}" data-type="json">([^<]*)<', file.read_text(encoding="utf-8"))[0]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.mark.parametrize("options", [["-o", "FILE"], ["--output-format", "html", "-o", "FILE"]])
def test_a_report_is_written_as_a_page(options: list[str], grid: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "report.html"
    assert output(capsys, "report", grid, "-q", *(str(file) if word == "FILE" else word for word in options)) == ""
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert f"deepthink report {grid} " in page
    assert len(column(file, "about")["groups"]) == 8


def test_an_evaluation_is_written_as_a_page(memory: Path, labelled: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "eval.html"
    result = json_of(capsys, "eval", memory, labelled, "--html", file, "-q", "--json")
    page = file.read_text(encoding="utf-8")
    assert f"{result['results'][1]['log_probability']:.3f}" in page
    assert "deepthink eval" in page
    assert column(file, "texts")[0] == "film <b>number</b> 0"
    assert column(file, "places")[0].endswith("labelled.jsonl:1")
    assert column(file, "about")["groups"][0]["iterations"] == [1, 2]
    assert "<b>number" not in page


def test_samples_of_a_page_are_those_of_the_first_calibration(memory: Path, labelled: Path, tmp_path: Path) -> None:
    file = tmp_path / "eval.html"
    words = ["eval", str(memory), str(labelled), "-q", "--html", str(file), "--calibrate", "domain"]
    assert run(words) == 0
    page = file.read_text(encoding="utf-8")
    assert "Labels and scores are those of domain calibration." in page
    assert "6 rows by domain calibration" in page


@pytest.mark.parametrize("calibration", ["pmi", "contextual"])
def test_the_tables_of_a_page_have_the_figures_of_the_evaluation(
    calibration: str, memory: Path, labelled: Path
) -> None:
    report = evaluate(
        Scorer.open(memory, iteration="all", calibrate=[calibration], scoring=Scoring.of(score="mean")), labelled
    )
    cells = {table.caption: [list(row[:3]) for row in table.rows] for table in tables_of(report.evaluation)}
    ways = {"raw scores": report.evaluation, f"{calibration} calibration": report.evaluation.calibrated[calibration]}
    for way, evaluation in ways.items():
        for iteration, metrics in evaluation.results.items():
            low, high = metrics.ci95
            assert [str(iteration), f"{metrics.accuracy:.1%}", f"{low:.1%} to {high:.1%}"] in cells[f"6 rows by {way}"]
    assert page_of_evaluation(report, Samples()).settings["scoring"] == "score=mean"


def test_the_page_of_a_technique_does_not_call_its_first_reading_plain(
    thought_of: Callable[..., Path], labelled: Path, tmp_path: Path
) -> None:
    memory, page = thought_of(tmp_path / "mem.safetensors", "llama", "--technique", "flipped"), tmp_path / "page.html"
    assert run(["eval", str(memory), str(labelled), "-q", "--html", str(page)]) == 0
    assert "T = 1 is plain in-context learning" not in page.read_text(encoding="utf-8")


def test_rows_that_are_demonstrations_are_told_apart_in_the_page(memory: Path, labelled: Path, tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "some.jsonl",
        [{"review": "far too long", "sentiment": "negative"}, {"review": "another", "sentiment": "negative"}],
    )
    file = tmp_path / "eval.html"
    assert run(["eval", str(memory), str(rows), "-q", "--html", str(file)]) == 0
    page = file.read_text(encoding="utf-8")
    assert "1 of the rows are demonstrations" in page
    assert "1 rows that are not demonstrations" in page


def test_a_page_does_not_overwrite_what_is_read(memory: Path, labelled: Path, capsys: Captured) -> None:
    file = labelled.rename(labelled.with_suffix(".html"))
    (link := labelled).symlink_to(file)
    assert run(["eval", str(memory), str(link), "--html", str(file)]) == 2
    assert f"--html {file}: the same file as {link}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["page.pdf", "page"])
def test_a_page_ends_in_html(name: str, memory: Path, labelled: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(["eval", str(memory), str(labelled), "--html", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err == f"deepthink: --html {tmp_path / name}: a page is HTML; end the name in .html\n"
