"""docs/evidence.md from small result folders: choices, controls, sentences, and the page as a whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.small_evidence import ITERATIONS, LABELS, made_up_scores, write_grid, write_row
from scipy.special import log_softmax
from scipy.stats import pearsonr

from deepthink_cli.data.examples import Query
from deepthink_cli.experiments.samples import write_texts
from deepthink_cli.report.job_results import read_jobs
from deepthink_cli.report.significance import discordant
from deepthink_cli.report.tables import summarize
from deepthink_cli.scoring.prediction import Prediction
from research.evidence import findings, page, statistics
from research.evidence.__main__ import write
from research.evidence.agreement import changes_sentence, device_sentence, dtype_sentence
from research.evidence.cells import HARMS, HELPS, SAME, choices, compare_chosen, fixed, verdict
from research.evidence.claims import Found, claims, holds
from research.evidence.controls import flipped, repeats
from research.evidence.load import Evidence, read_evidence

HEADINGS = (
    "What was run",
    "Where thinking helps",
    "What goes along with the gain",
    "predicted labels",
    "Accuracy over T",
    "public",
)


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals by few resamplings: what is tested is not how exact they are."""
    monkeypatch.setattr(statistics, "ROUNDS", 50)


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
    assert row["distribution"].tolist() == [0.75, 0.25]
    assert row["scores"].labels == LABELS
    assert np.exp(row["scores"].logs).sum(axis=1) == pytest.approx(1)


def test_chosen_t_and_eta_are_those_of_deepthink_report(written: Path, evidence: Evidence) -> None:
    chosen = choices(evidence.grid)
    for line in summarize(read_jobs([written / "continued"])):
        if not line.is_mean:
            ours = chosen[(chosen["setting"] == "continued") & (chosen["task"] == line.name)]
            comparison = compare_chosen(ours)
            assert (list(ours["t"]), list(ours["eta"])) == (line.iterations, line.etas)
            assert comparison.mean == pytest.approx(line.difference.mean)
            assert (comparison.better, comparison.worse) == (line.better, line.worse)
            assert (comparison.better, comparison.worse) == (line.better, line.worse)
            assert ours["oracle"].mean() == pytest.approx(line.oracle.mean)


def test_a_seed_without_every_t_has_no_chosen_t_but_counts_where_it_has_rows(folder: Path) -> None:
    for t in ITERATIONS[:2]:
        for part in ("test", "dev"):
            write_row(folder / "continued", made_up_scores(40, "x", 0), seed=9, t=t, part=part)
    evidence = read_evidence(folder)
    assert 9 not in set(choices(evidence.grid)["seed"])
    cells = fixed(evidence.grid).set_index(["setting", "task", "eta", "t"])
    assert cells.loc[("continued", "sst2", 0.1, 2)]["seeds"] == 4
    assert cells.loc[("continued", "sst2", 0.1, 5)]["seeds"] == 3
    assert "every setting has 0, 1, 2 (6 task-seed pairs)." in findings.covered(evidence.grid)


def test_rows_without_samples_are_left_out_and_counted(folder: Path) -> None:
    before = read_evidence(folder)
    sorted((folder / "continued" / "samples").iterdir())[0].unlink()
    after = read_evidence(folder)
    assert (after.without_samples, len(after.rows)) == (1, len(before.rows) - 1)
    assert len(choices(after.grid)) == len(choices(before.grid)) - 1


def test_the_gain_of_exchanged_labels_is_the_share_that_follows_the_demonstrations(tmp_path: Path) -> None:
    true = np.array([[0.0, -1.0], [-1.0, 0.0]] * 10)  # always the true label
    write_row(tmp_path / "flipped", true, t=1)
    write_row(tmp_path / "flipped", -true, t=2)  # never
    write_row(tmp_path / "continued", true, t=1)
    write_row(tmp_path / "continued", true, t=2)  # the words as they are: no wrong answer more
    evidence = read_evidence(tmp_path)
    (found,) = flipped(evidence.folder("flipped"), evidence.grid.assign(setting="flipped"))
    assert found.control is not None
    assert (found.control.before, found.control.after) == ((0.0,), (0.0,))
    assert (found.raw.before, found.raw.after) == ((0.0,), (1.0,))
    assert (found.calibrated.before, found.calibrated.after) == ((0.0,), (1.0,))


def test_the_claim_of_aligned_curves_is_judged_by_the_correlation_of_dev_and_test_accuracies(
    evidence: Evidence,
) -> None:
    grid = evidence.grid
    rows = grid[(grid["setting"] == "continued") & (grid["eta"] == 0.1)]
    tables = [job.pivot(index="t", columns="part", values="accuracy") for _, job in rows.groupby(["task", "seed"])]
    expected = np.mean([pearsonr(table["dev"], table["test"]).statistic for table in tables if len(table)])
    (found,) = (each.found for each in claims(evidence, []) if "aligned" in each.words)
    assert f"eta 0.1: {expected:.2f} [" in found.figures


def test_a_claim_without_data_says_that_it_is_not_measured_here(evidence: Evidence) -> None:
    ours = {each.words: each.found for each in claims(evidence, [])}
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


def test_repetition_is_compared_with_thinking_that_reads_as_often(folder: Path) -> None:
    scores = made_up_scores(40, "repeated", 0)
    write_row(folder / "repeated", scores, seed=1, shots=40)
    evidence = read_evidence(folder)
    found = list(repeats(evidence.folder("repeated"), evidence.grid))
    assert {(each.times, each.t, each.task, each.seeds) for each in found} == {(5, 5, "sst2", (1,))}
    rows = evidence.rows.set_index(["folder", "task", "seed", "eta", "t", "part"])
    thought = rows.loc[("restarted", "sst2", 1, 0.1, 5, "test")]
    settings = [(each.setting, each.eta) for each in found]
    assert settings == [("continued", 0.01), ("continued", 0.1), ("restarted", 0.1)]  # the paper's is always there
    assert found[2].agreement.after == (float((thought["labels"] == scores.argmax(axis=1)).mean()),)


@pytest.mark.soak  # draws every figure twice; in the suite pages are written from less
def test_the_page_has_every_section_and_its_bytes_do_not_depend_on_the_order_of_rows(folder: Path) -> None:
    first = _files(folder)
    page = first["evidence.md"].decode()
    assert all(heading in page for heading in HEADINGS)
    assert "tiny.gguf was run on SST-2 and MR with 3 seeds: 12 runs" in page
    for name in ("differences.png", "curves.png", "gains.png", "labels.png", "cells.csv"):
        assert f"(evidence/{name})" in page
        assert first[name]
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
    page = _page(evidence)
    assert all(heading in page for heading in HEADINGS)
    known = what == "one task of one setting"
    assert ("nothing can be said" in page) is not known


def test_controls_and_variations_are_not_cells_of_the_grid(folder: Path) -> None:
    before = read_evidence(folder).grid
    for name in ("repeated", "flipped", "all-rows", "more-seeds"):
        write_row(folder / name, made_up_scores(60, name, 0))
    assert len(read_evidence(folder).grid) == len(before)


def test_rows_in_float32_are_compared_with_the_same_rows_of_the_grid(folder: Path) -> None:
    before = read_evidence(folder)
    assert dtype_sentence(before.grid, before.float32) == ""
    row = before.grid[(before.grid["t"] == 5) & (before.grid["part"] == "test")].iloc[0]
    scores = np.array(row["scores"].logs)
    scores[:4] = scores[:4, ::-1]
    place = {name: row[name] for name in ("task", "eta", "part", "positions")}
    write_row(folder / f"float32-{row['positions']}", scores, seed=int(row["seed"]), t=5, **place)
    evidence = read_evidence(folder)
    assert len(evidence.grid) == len(before.grid)
    said = dtype_sentence(evidence.grid, evidence.float32)
    assert said.startswith("1 results (SST-2, seed 0, every T, test and dev rows) were run in float32 as well: 10.0 %")
    assert said in page._coverage(page.Study(evidence, folder))[1]


def test_what_changes_in_float32_is_compared_on_the_rows_that_both_dtypes_have(folder: Path) -> None:
    grid = read_evidence(folder).grid
    ours = grid[(grid["setting"] == "continued") & (grid["part"] == "test") & (grid["eta"] == 0.01)]
    expected, first = [], []
    for (task, seed), job in ours.groupby(["task", "seed"], observed=True):
        right = dict(zip(job["t"], job["right"], strict=True))
        expected.append((right[5] * 1.0 - right[1])[:20].mean())  # float32 changes nothing
        exact = made_up_scores(20, task, 0).argmax(axis=1) == np.arange(20) % 2
        first.append((right[1][:20] * 1.0 - exact).mean())
        for t in (1, 5):
            write_row(folder / "all-rows", made_up_scores(20, task, 0), task=task, seed=int(seed), eta=0.01, t=t)
            write_row(folder / "all-rows", made_up_scores(20, "9", 0), task=task, seed=9, eta=0.01, t=t)  # of others
    evidence = read_evidence(folder)
    said = changes_sentence(evidence.grid, evidence.folder("all-rows"), 5)
    assert f"accuracy at T = 1 {100 * np.mean(first):+.1f} points [" in said
    assert f"its change from T = 1 to T = 5 {100 * np.mean(expected):+.1f} points [" in said
    assert f"({len(expected)} task-seed pairs)" in said
    assert changes_sentence(evidence.grid, evidence.folder("chat"), 5) == ""
    assert said in page._coverage(page.Study(evidence, folder))[1]


def test_a_gpu_is_compared_with_a_processor_on_the_rows_that_both_scored(folder: Path) -> None:
    scores = made_up_scores(20, "1", 0)
    others = scores[:12] + np.array([[0.25, -0.25]])
    for seed, on_processor in ((0, scores[:12]), (1, others)):
        for t in (1, 5):
            write_row(folder / "all-rows", scores, seed=seed, eta=0.01, t=t)
            write_row(folder / "own", on_processor, seed=seed, eta=0.01, t=t)
            write_row(folder / "own", others, seed=2, eta=0.01, t=t)  # on the processor alone
    evidence = read_evidence(folder)
    said = device_sentence(evidence.folder("all-rows"), evidence.folder("own"), 5)
    differing = 2 * (scores[:12].argmax(1) != others.argmax(1)).sum()
    first, second = (log_softmax(each, axis=1) for each in (scores[:12], others))
    assert said.startswith("4 results of 1 task in float32, at T = 1 and T = 5, were made on a GPU and on a processor")
    assert f"of 48 labels {differing} differ, and" in said
    assert f"by at most {np.abs(first - second).max():.1e} nats" in said
    assert said in page._coverage(page.Study(evidence, folder))[1]
    assert device_sentence(evidence.folder("all-rows"), evidence.folder("chat"), 5) == ""


def test_how_many_test_sentences_two_tasks_share_is_counted_in_the_texts(folder: Path) -> None:
    for task, texts in (("sst2", "abcd"), ("sst5", "cdefgh"), ("mr", "ab")):
        row = write_row(folder / "all-rows", made_up_scores(len(texts), task, 0), task=task)
        inputs = [Query(text, LABELS, None, f"{task}:{place}") for place, text in enumerate(texts)]
        predictions = [Prediction(each, 1, "negative", 0.5, {}, "negative", False, means={}) for each in inputs]
        write_texts(folder / "all-rows", str(row.setting.rows_sha256), predictions)
    evidence = read_evidence(folder)
    said = ", though 2 of the 4 validation sentences of SST-2 are among those of SST-5"
    assert (page._shared(evidence.texts), page._shared({})) == (said, "")


def test_the_first_paragraph_says_which_t_dev_rows_choose_and_what_all_rows_give(folder: Path) -> None:
    for seed in range(2):
        for t, right in ((1, 10), (5, 12)):
            scores = np.eye(2)[np.arange(20) % 2]
            scores[right:] = scores[right:, ::-1]  # wrong
            write_row(folder / "all-rows", scores, seed=seed, eta=0.01, t=t)
    evidence = read_evidence(folder)
    text = page._question(page.Study(evidence, folder))[2]
    chosen, largest = choices(evidence.grid[evidence.grid["setting"] == "continued"], [0.01])["t"], max(ITERATIONS)
    ends = [(chosen == t).sum() for t in (1, largest)]
    assert f"T = 1 in {ends[0]} of {len(chosen)} cases, and the largest, T = {largest}, in {ends[1]})" in text
    assert "With T = 5 for all, on all test rows (of AG News 2,000), seeds 0 to 4, accuracy changes by +10.0 " in text


def test_the_headline_counts_the_runs_that_are_helped_and_harmed(evidence: Evidence) -> None:
    chosen = choices(evidence.grid)
    pairs = zip(chosen["before"], chosen["after"], strict=True)
    found = [verdict(discordant(first["right"], last["right"])) for first, last in pairs]
    helped = findings.counted(found.count(HELPS), "run")
    said = f"thinking helps in {helped}, harms in {found.count(HARMS)}, and shows no difference in {found.count(SAME)} "
    assert said in findings.headline(chosen, evidence)


def test_the_sentence_about_calibration_has_every_task(evidence: Evidence) -> None:
    grid = evidence.grid
    chosen = choices(grid[grid["setting"] == "continued"])
    said = findings.balance_sentence(chosen)
    for task, rows in chosen.groupby("task", observed=True):
        step = np.mean([row["calibrated"] - row["accuracy"] for row in rows["before"]])
        assert f"{findings.names([task])} {findings.points(step)} points [" in said


def _page(evidence: Path) -> str:
    target = evidence.parent / "docs" / "evidence.md"
    write(evidence, target)
    return target.read_text(encoding="utf-8")


def _files(evidence: Path) -> dict[str, bytes]:
    _page(evidence)
    docs = evidence.parent / "docs"
    return {path.name: path.read_bytes() for path in docs.rglob("*") if path.is_file()}


def test_results_at_a_fixed_t_are_counted_without_a_choice(evidence: Evidence) -> None:
    every = fixed(evidence.grid)
    said = findings.fixed_sentence(every)
    counts = [every["raw"].map(lambda each, name=name: getattr(each, name)).sum() for name in ("better", "worse")]
    assert f"helps in {counts[0]} of {every['seeds'].sum()} results and harms in {counts[1]}; " in said
    assert "in the paper's setting it helps in " in said
    assert findings.fixed_sentence(every.iloc[:0]) == ""
