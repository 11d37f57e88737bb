"""The page of Table 1: its cells are means of the rows, and its sentences follow from them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.synthetic import N, curve, write

from deepthink_cli.cli.main import program
from deepthink_cli.experiments.results import bits, read_results
from deepthink_cli.experiments.samples import samples_path
from deepthink_cli.selection.registry import METHODS
from research.evidence.discrimination import difference
from research.evidence.words import with_interval
from research.table1.page import Model, page, read_models
from research.table1.runs import SEEDS, SELECTING, STAGES, TASKS, all_jobs

BASE = {"random": 50, "herding": 60, "lens": 70}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three methods on two tasks with three seeds; thinking adds 2 points to raw scores, and batch calibration 5."""
    rows = [
        row
        for task in ("sst2", "trec")
        for seed in range(3)
        for sampling, right in BASE.items()
        for calibration, plain, thinking in ((None, right, right + 2), ("batch", right + 5, right + 5))
        for part in ("test", "dev")
        for row in curve(
            [plain + seed, thinking + seed],
            {"drift": None},
            task=task,
            seed=seed,
            sampling=sampling,
            calibration=calibration,
            part=part,
            pool_size=1000,
            balanced=False,
            split="train" if part == "dev" else "validation",
            demonstrations_sha256=f"{sampling}{seed}",
        )
    ]
    write(tmp_path / "model" / "features-sst2", rows)
    (tmp_path / "model" / "costs.jsonl").write_text(
        '{"method": "random", "observed": 0, "sets": 0, "scored": 0, "dtype": "float32", "process_seconds": 7.5}\n'
        '{"method": "herding", "observed": 1000, "sets": 0, "scored": 0, "dtype": "float32", "process_seconds": 19.5}\n'
    )
    rivals = [
        {
            "task": task,
            "seed": seed,
            "classifier": "TF-IDF",
            "trained_on": trained_on,
            "labels": 8,
            "n": N,
            "right": right,
            "correct": bits([place < right for place in range(N)]),
        }
        for task in ("sst2", "trec")
        for seed in range(3)
        for trained_on, right in (("demonstrations", 40 + 2 * seed), ("demonstrations and dev rows", 80))
    ]
    (tmp_path / "model" / "rivals.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rivals))
    return tmp_path


def with_scores(folder: Path, unscored: frozenset[str] = frozenset()) -> list[Model]:
    """The models of a folder as if the scores of every row were kept, except those of some methods."""
    return [replace(model, unscored=unscored) for model in read_models(folder)]


def test_the_table_has_the_means_over_seeds_raw_and_corrected(folder: Path, tmp_path: Path) -> None:
    text = page(with_scores(folder), tmp_path)
    assert "| herding | 0 | 1,000 | 12 | 61.0 | 61.0 | 61.0 |" in text  # at T = 1, with what it costs
    assert "| herding | 66.0 | 66.0 | 66.0 |" in text
    assert "| herding | 80 | 63.0 | 63.0 | 63.0 |" in text  # with T by the labels of dev rows
    assert "| lens | 1,000 | – | – | 71.0 | 71.0 | 71.0 |" in text
    assert {path.name for path in tmp_path.glob("*.png")} == {"model.png"}


def test_the_sentences_name_the_best_method_and_both_gains(folder: Path, tmp_path: Path) -> None:
    text = page(with_scores(folder), tmp_path)
    assert "the best of 2 other choices against random demonstrations: lens with +20.0 points [" in text
    assert "changes accuracy by +2.0 points [" in text
    assert "by 0.0 points after batch calibration. Calibration alone changes T = 1 by +5.0 points [" in text


def test_what_is_above_random_is_shown_by_students_p_after_holms_correction(folder: Path, tmp_path: Path) -> None:
    (model,) = with_scores(folder)
    answers = model.answers.set_index(["method", "task", "seed"])
    for task, seed, right in (("sst2", 0, 95), ("sst2", 1, 35), ("trec", 1, 90), ("trec", 2, 30)):
        answers.at[("herding", task, seed), "plain"] = (np.arange(100) < right).astype(float)
    text = page([replace(model, answers=answers.reset_index())], tmp_path)
    assert "With raw scores the means of 2 of 2 are above that of random; of 1 it is shown (lens)." in text
    assert "the means of 2 of 2 are above that of random; of 2 it is shown (herding, lens)." in text


def test_classifiers_stand_beside_the_methods_that_see_the_same_labels(folder: Path, tmp_path: Path) -> None:
    text = page(with_scores(folder), tmp_path)
    assert "| TF-IDF | demonstrations | 8 | 3 | 42.0 | 42.0 | 42.0 |" in text
    rights = [np.array([np.arange(N) < right for right in each], dtype=float) for each in ((40, 42, 44), (55, 56, 57))]
    change = difference([(rights[0], rights[1])] * 2)
    assert f"T = 1, after batch calibration: {with_interval(change)} against TF-IDF." in text
    assert "T chosen on dev rows, after batch calibration: -24.0 points [" in text


def test_methods_that_were_not_run_are_named(folder: Path, tmp_path: Path) -> None:
    (line,) = [line for line in page(with_scores(folder), tmp_path).splitlines() if line.startswith("Not run yet")]
    assert "random-valid" in line
    assert "lens" not in line


def test_without_results_the_page_says_so(tmp_path: Path) -> None:
    assert page(read_models(tmp_path), tmp_path).endswith("Nothing has been run for this yet.\n")


def test_a_method_is_compared_only_when_it_has_every_pair_of_a_task_and_a_seed(folder: Path, tmp_path: Path) -> None:
    rows = [
        row
        for calibration in (None, "batch")
        for part in ("test", "dev")
        for row in curve(
            [59, 59],
            {"drift": None},
            task="sst2",
            seed=0,
            sampling="influence",
            calibration=calibration,
            part=part,
            pool_size=1000,
            balanced=False,
            split="train" if part == "dev" else "validation",
            demonstrations_sha256="influence0",
        )
    ]
    write(folder / "model" / "influence-sst2", rows)
    text = page(with_scores(folder), tmp_path)
    assert "| influence | 1,000 | – | – | 59.0 |  |  |" in text
    assert "have been run yet for: influence (1)." in text
    assert "the best of 2 other choices against random demonstrations: lens with" in text
    assert "Means over 6 task-seed pairs" in text


def test_every_method_of_the_table_is_run_once_for_each_task_and_seed() -> None:
    named = [name for methods in SELECTING.values() for name in methods]
    assert set(named) == set(METHODS) - {"stratified", "first"}
    folders = [job.folder for job in all_jobs()]
    assert len(folders) == len(set(folders)) == len(STAGES) * len(TASKS) * len(SEEDS)


def write_scores(folder: Path, calibration: str | None, gold: list[int], part: str = "test") -> Path:
    """Scores of the random demonstrations of a task and seed, which give label 1 by one nat or three, in turns.

    So a correction that takes 1.67 nats off gives label 0 and label 1 in turns.
    """
    run = folder / "model" / "features-sst2"
    (result,) = [
        each
        for each in read_results(run)
        if (each.setting.sampling, each.setting.seed, each.setting.part) == ("random", 0, part)
        and (each.setting.task, each.setting.iteration, each.setting.calibration) == ("sst2", 1, calibration)
    ]
    columns = {"gold": [str(label) for label in gold], "candidates": [["0", "1"]] * N}
    scores = [1.0 if place % 2 == 0 else 3.0 for place in range(N)]
    columns |= {"scores": [[0.0, score] for score in scores], "calibrated": [[0.0, score - 1.67] for score in scores]}
    path = samples_path(run, result)
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_answers_are_those_of_the_scores_before_and_after_a_correction(folder: Path) -> None:
    (known,) = read_models(folder)
    write_scores(folder, None, [1 if place < 50 else 0 for place in range(N)])
    file = write_scores(folder, "batch", [place % 2 if place < 55 else 1 - place % 2 for place in range(N)])
    (model,) = read_models(folder)
    assert model.accuracies.equals(known.accuracies)
    write_scores(folder, "batch", [place % 2 for place in range(N)])
    with pytest.raises(SystemExit, match=re.escape(f"{file}: its scores do not give the answers of its result")):
        read_models(folder)


def test_answers_of_dev_rows_which_choose_T_are_those_of_the_scores_too(folder: Path) -> None:
    file = write_scores(folder, None, [0] * N, "dev")  # all wrong
    with pytest.raises(SystemExit, match=re.escape(f"{file}: its scores do not give the answers of its result")):
        read_models(folder)


def test_without_the_scores_of_dev_rows_a_method_has_no_T_chosen_by_them(folder: Path, tmp_path: Path) -> None:
    whole = page(with_scores(folder), tmp_path)
    assert "| lens | 1,080 |" in whole
    assert "In the mean of 3 choices, random among them" in whole
    text = page(with_scores(folder, unscored=frozenset({"lens"})), tmp_path)
    assert "| lens | 1,080 |" not in text
    assert "Also left out: lens, of which the scores at T > 1 and of dev rows are not all kept." in text
    assert "In the mean of 2 choices, random among them" in text
    assert "#### With T by dev rows" not in page(read_models(folder), tmp_path)


def test_the_commands_are_commands_of_the_program() -> None:

    run = program().commands["run"]
    for job in all_jobs():
        run.make_context("run", list(job.arguments))
