"""docs/evidence.md from small result folders: choices, controls, sentences, and the page as a whole."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.small_evidence import ITERATIONS, LABELS, made_up_scores, write_grid, write_row
from scipy.stats import pearsonr

from deepthink_cli.report.job_results import read_jobs
from deepthink_cli.report.tables import summarize
from research.evidence import page
from research.evidence.__main__ import write
from research.evidence.cells import choices
from research.evidence.claims import Found, claims, holds
from research.evidence.discrimination import Difference
from research.evidence.load import Evidence, read_evidence


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings, three seeds; not to be changed."""
    evidence = tmp_path_factory.mktemp("written")
    for positions in ("continued", "restarted"):
        write_grid(evidence / positions, positions, range(3))
    return evidence


@pytest.fixture(scope="module")
def evidence(written: Path) -> Evidence:
    """What is read of them."""
    return read_evidence(written)


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Two settings, three seeds."""
    return Path(shutil.copytree(written, tmp_path / "evidence"))


def test_scores_are_read_back_as_log_probabilities_with_their_measures(tmp_path: Path) -> None:
    scores = np.array([[-1.0, -2.0], [-1.0, -2.0], [-1.0, -2.0], [-3.0, -1.0]])
    result = write_row(tmp_path / "continued", scores)
    row = read_evidence(tmp_path).rows.iloc[0]
    assert row["accuracy"] == result.accuracy == 0.75
    assert row["scores"].labels == LABELS
    assert np.exp(row["scores"].logs).sum(axis=1) == pytest.approx(1)


def test_chosen_t_and_eta_are_those_of_deepthink_report(written: Path, evidence: Evidence) -> None:
    chosen = choices(evidence.grid)
    for line in summarize(read_jobs([written / "continued"])):
        if not line.is_mean:
            ours = chosen[(chosen["setting"] == "continued") & (chosen["task"] == line.name)]
            assert (list(ours["t"]), list(ours["eta"])) == (line.iterations, line.etas)
            changes = [
                after["accuracy"] - before["accuracy"]
                for before, after in zip(ours["before"], ours["after"], strict=True)
            ]
            assert np.mean(changes) == pytest.approx(line.gain.spread.mean)


def test_a_seed_without_every_t_has_no_chosen_t(folder: Path) -> None:
    for t in ITERATIONS[:2]:
        for part in ("test", "dev"):
            write_row(folder / "continued", made_up_scores(40, "x", 0), seed=9, t=t, part=part)
    assert 9 not in set(choices(read_evidence(folder).grid)["seed"])


def test_rows_without_samples_are_left_out(folder: Path) -> None:
    before = read_evidence(folder)
    sorted((folder / "continued" / "samples").iterdir())[0].unlink()
    after = read_evidence(folder)
    assert len(after.rows) == len(before.rows) - 1
    assert len(choices(after.grid)) == len(choices(before.grid)) - 1


def test_the_claim_of_aligned_curves_is_judged_by_the_correlation_of_dev_and_test_accuracies(
    evidence: Evidence,
) -> None:
    grid = evidence.grid
    rows = grid[(grid["setting"] == "continued") & (grid["eta"] == 0.1)]
    tables = [job.pivot(index="t", columns="part", values="accuracy") for _, job in rows.groupby(["task", "seed"])]
    expected = np.mean([pearsonr(table["dev"], table["test"]).statistic for table in tables if len(table)])
    (found,) = (each.found for each in claims(evidence, {}) if "aligned" in each.words)
    assert f"eta 0.1: {expected:.2f} [" in found.figures


def test_a_claim_without_data_says_that_it_is_not_measured_here(evidence: Evidence) -> None:
    ours = {each.words: each.found for each in claims(evidence, {})}
    after_choice = "after demonstrations that were chosen by dev rows, thinking still raises it"
    assert ours["MMLU and BBH gain on every model"] == ours[after_choice] == Found("not measured here", "")


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.1, 0.2)], "yes"),
        ([(-0.1, 0.2)], "not shown"),
        ([(-0.2, -0.1)], "no"),
        ([(0.1, 0.2), (-0.1, 0.2)], "not shown"),
        ([(0.1, 0.2), (-0.2, -0.1)], "no"),
        ([None], "not shown"),
    ],
)
def test_a_claim_holds_where_all_intervals_exclude_zero_and_fails_where_one_is_below(
    intervals: list[tuple[float, float] | None], verdict: str
) -> None:
    assert holds(*intervals) == verdict


def test_the_page_answers_from_the_figures_and_does_not_depend_on_the_order_of_rows(folder: Path) -> None:
    first = _files(folder)
    cells = csv.DictReader(first["comparisons.csv"].decode().splitlines())
    change = {(each["line"], each["measure"]): 100 * float(each["difference"]) for each in cells}
    said = f"thinking changes accuracy by {change[page.PAPER_BY_DEV, 'accuracy']:+.1f} points"
    assert said in first["evidence.md"].decode()
    assert first["question.png"]
    assert b"The paper's claims" in first["evidence-details.md"]
    for path in folder.glob("*/results.jsonl"):
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert _files(folder) == first


@pytest.mark.parametrize("what", ["nothing", "missing", "one row", "dev rows only", "one task of one setting"])
def test_a_page_is_written_from_incomplete_evidence(tmp_path: Path, what: str) -> None:
    evidence = tmp_path / "evidence"
    if what == "nothing":
        evidence.mkdir()
    elif what == "one row":
        write_row(evidence / "continued", made_up_scores(10, "x", 0))
    elif what == "dev rows only":
        write_row(evidence / "official", made_up_scores(10, "x", 0), part="dev", momentum=0.9)
    elif what == "one task of one setting":
        for t in ITERATIONS:
            for part in ("test", "dev"):
                write_row(evidence / "restarted", made_up_scores(10, f"{t}", 0), t=t, part=part)
    said = _files(evidence)["evidence.md"].decode()
    assert ("Nothing has been run yet." in said) is (what != "one task of one setting")


@pytest.mark.parametrize(("fitted", "said"), [(0.005, "no gain is shown to be left"), (0.05, "a gain is left")])
def test_what_labelled_rows_leave_of_a_gain_decides_what_the_answer_says(
    evidence: Evidence, fitted: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Difference(0.5, 0.56, 0.06, (0.03, 0.09), 0.001)
    left = Difference(0.6, 0.6 + fitted, fitted, (fitted - 0.01, fitted + 0.01), 0.001)
    changes = {"accuracy": change, "fitted": left}
    monkeypatch.setattr(page.Study, "change", lambda _, name, measure: changes.get(measure))
    assert said in page.answer(page.Study(evidence, Path()))


def _files(evidence: Path) -> dict[str, bytes]:
    docs = evidence.parent / "docs"
    write(evidence, docs / "evidence.md")
    return {path.name: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
