"""docs/evidence.md, its details and docs/table1.md from small result folders."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.small_evidence import LABELS, made_up_scores, write_evidence, write_row

from deepthink_cli.report.job_results import read_jobs
from deepthink_cli.report.tables import summarize
from research.evidence import page, predictions
from research.evidence.__main__ import write
from research.evidence.claims import holds
from research.evidence.compared import PAPER, Difference, lines
from research.evidence.load import Evidence, read_evidence
from research.evidence.predictions import HIT, MISS, OPEN, Results, outcomes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds; not to be changed."""
    evidence = tmp_path_factory.mktemp("written")
    write_evidence(evidence, range(3))
    return evidence


@pytest.fixture(scope="module")
def evidence(written: Path) -> Evidence:
    """What is read of them."""
    return read_evidence(written)


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Three seeds."""
    return Path(shutil.copytree(written, tmp_path / "evidence"))


def test_scores_are_read_back_as_log_probabilities(tmp_path: Path) -> None:
    scores = np.array([[-1.0, -2.0], [-1.0, -2.0], [-1.0, -2.0], [-3.0, -1.0]])
    write_row(tmp_path / "thinking", scores)
    read = read_evidence(tmp_path).rows.iloc[0]["scores"]
    assert read.labels == LABELS
    assert read.right.mean() == 0.75
    assert np.exp(read.logs).sum(axis=1) == pytest.approx(1)


def test_accuracies_at_the_chosen_t_are_those_of_deepthink_report(written: Path, evidence: Evidence) -> None:
    chosen = next(each for each in lines(evidence) if each.name == PAPER)
    for line in summarize(read_jobs([written / "thinking"])):
        if not line.is_mean:
            steps = chosen.by("accuracy").tasks[line.name]
            assert steps == pytest.approx(line.gain.spread.mean)


def test_rows_without_samples_are_left_out(folder: Path) -> None:
    before = read_evidence(folder)
    sorted((folder / "thinking" / "samples").iterdir())[0].unlink()
    assert len(read_evidence(folder).rows) == len(before.rows) - 1


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [([(0.1, 0.2)], "yes"), ([(-0.1, 0.2)], "not shown"), ([(-0.2, -0.1)], "no"), ([(0.1, 0.2), (-0.2, -0.1)], "no")],
)
def test_a_claim_holds_where_all_intervals_exclude_zero_and_fails_where_one_is_below(
    intervals: list[tuple[float, float]], verdict: str
) -> None:
    assert holds(*intervals) == verdict


def test_the_pages_answer_from_the_figures_and_do_not_depend_on_the_order_of_rows(folder: Path) -> None:
    first = _files(folder)
    cells = csv.DictReader(first["comparisons.csv"].decode().splitlines())
    change = {(each["line"], each["measure"]): 100 * float(each["difference"]) for each in cells}
    said = f"thinking changes accuracy by {change[PAPER, 'accuracy']:+.1f} points"
    assert said in first["evidence.md"].decode()
    assert first["question.png"]
    assert "thinking after random-valid minus thinking after random" in first["evidence-details.md"].decode()
    assert "| graph-cut |" in first["table1.md"].decode()
    for path in folder.glob("*/results.jsonl"):
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert _files(folder) == first


def test_a_line_that_was_run_in_fewer_cells_is_named(folder: Path) -> None:
    rows = folder / "techniques" / "results.jsonl"
    lines = [line for line in rows.read_text().splitlines(keepends=True) if json.loads(line)["setting"]["seed"] < 2]
    assert "Of 6 pairs" not in _files(folder)["evidence.md"].decode()
    rows.write_text("".join(lines))
    assert "Of 6 pairs of a task and a seed, `composed` has 4." in _files(folder)["evidence.md"].decode()


@pytest.mark.parametrize("what", ["nothing", "one row"])
def test_pages_are_written_from_incomplete_evidence(tmp_path: Path, what: str) -> None:
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    if what == "one row":
        write_row(evidence / "thinking", made_up_scores(10, "x", 0))
    assert "Nothing has been run yet." in _files(evidence)["evidence.md"].decode()


@pytest.mark.parametrize(("fitted", "said"), [(0.005, "subtracted, no gain is shown"), (0.05, "a gain is left")])
def test_what_labelled_rows_leave_of_a_gain_decides_what_the_answer_says(
    evidence: Evidence, fitted: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Difference(0.5, 0.56, 0.06, (0.03, 0.09), 0.001)
    left = Difference(0.6, 0.6 + fitted, fitted, (fitted - 0.01, fitted + 0.01), 0.001)
    changes = {"accuracy": change, "after a fitted bias": left, "pairs": left}
    monkeypatch.setattr(page.Study, "change", lambda _, name, measure: changes.get(measure))
    assert said in page.answer(page.Study(evidence))


def test_predictions_are_judged_by_what_was_run_and_are_open_where_nothing_was(evidence: Evidence) -> None:
    results = Results(evidence, [])
    verdicts = [OPEN if each is None else each.verdict for each in outcomes(results)]
    assert verdicts[8:] == [OPEN] * 3
    assert results.lines[PAPER].by("accuracy").mean > 0.05
    assert verdicts[2] == MISS
    said = predictions.page(results, results) or ""
    assert f"Of 11 predictions, {verdicts.count(HIT)} are hits and {verdicts.count(MISS)} misses" in said
    assert said.count("| not run | open |") == 3
    assert predictions.page(results, Results(read_evidence(Path("no-folder")), [])) is None


@pytest.mark.parametrize(("after", "verdict"), [(0.8, HIT), (0.75, OPEN), (0.72, MISS)])
def test_context_tuning_is_judged_by_trec_after_batch_calibration(
    evidence: Evidence, after: float, verdict: str
) -> None:
    rows = [
        {"memory": memory, "correction": "batch", "labelled": 0, "task": "trec", "seed": 0, "n": 100, "right": right}
        for memory, right in (("T = 1", 70), ("ct-kv", round(100 * after)))
    ]
    assert predictions.context_tuning_learns(Results(evidence, rows)).verdict == verdict


def _files(evidence: Path) -> dict[str, bytes]:
    docs = evidence.parent / "docs"
    write(evidence, evidence, docs)
    return {path.name: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
