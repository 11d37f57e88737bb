"""Samples of a page: those of a run, in columns, and that what is kept is unpacked to the same."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.small_evidence import ITERATIONS, LABELS, write_grid
from helpers.synthetic import THREE, seeds, write
from helpers.web_pages import samples_of

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.samples import FOLDER
from deepthink_cli.plugins.pages import of_runs
from deepthink_cli.plugins.pages.of_runs import page_of_runs
from deepthink_cli.plugins.pages.page import WebPage
from deepthink_cli.plugins.pages.samples import Group, Samples
from deepthink_cli.report.job_results import read_jobs
from deepthink_cli.report.page import Report

NUMBERS = {"u16": "<u2", "u32": "<u4", "i32": "<i4"}


def unpacked(samples: Samples) -> dict[str, Any]:
    """Every column as the page's script reads it."""
    columns: dict[str, Any] = {}
    for column in samples.columns():
        content = gzip.decompress(base64.b64decode(column.packed()))
        columns[column.name] = (
            json.loads(content) if column.type == "json" else np.frombuffer(content, NUMBERS[column.type]).tolist()
        )
    return columns


def test_columns_hold_every_row_with_labels_and_scores_in_the_order_of_the_iterations() -> None:
    columns = unpacked(samples_of())
    assert columns["about"]["labels"] == ["positive", "negative"]
    assert columns["about"]["candidates"] == [[1, 0]]
    assert columns["group"] == [0] * 4 + [1] * 4
    assert columns["predicted"][:6] == [0, 1, 1, 0, 0, 1]
    assert columns["scores"][:6] == [-1000, -2000, -1000, -500, -1000, 1000]


def test_a_text_that_several_jobs_share_is_kept_once() -> None:
    columns = unpacked(samples_of())
    assert len(columns["texts"]) == 4
    assert columns["text"] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len(columns["places"]) == 8


def test_a_text_that_is_not_valid_unicode_is_kept_as_far_as_it_is() -> None:
    samples = Samples()
    samples.start(Group("sst2", "0", "", "test", (1,)))
    samples.add("half \ud800 a pair", "file:1", "x", ["x", "y"], ["x"], [[0.0, -1.0]])
    assert unpacked(samples)["texts"] == ["half ? a pair"]


@pytest.mark.parametrize("name", ["texts", "scores"])
def test_the_same_samples_are_packed_to_the_same_text(name: str) -> None:
    first, second = ({each.name: each.packed() for each in samples_of().columns()} for _ in range(2))
    assert first[name] == second[name]


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Two tasks with two seeds, two etas, three T, test and dev rows, and samples of all."""
    write_grid(tmp_path / "grid", "continued", seeds=(0, 1))
    return tmp_path / "grid"


def page_of(run: Path) -> WebPage:
    jobs = read_jobs([run])
    return page_of_runs(Report(str(run), jobs, line="deepthink report"))


def test_every_input_of_every_job_is_a_row(grid: Path) -> None:
    samples, missing = of_runs.samples_of(read_jobs([grid]))
    assert missing == 0
    assert len(samples) == 2 * 2 * 2 * (40 + 20)
    assert [group.method for group in samples.groups[:4]] == ["eta 0.01", "eta 0.01", "eta 0.1", "eta 0.1"]
    assert {group.part for group in samples.groups} == {"test", "dev"}
    assert {group.iterations for group in samples.groups} == {ITERATIONS}


def test_labels_and_accuracy_are_those_of_the_results(grid: Path) -> None:
    jobs = read_jobs([grid])
    samples, _ = of_runs.samples_of(jobs)
    labels = list(samples.labels)
    first = jobs[0].test
    for place, iteration in enumerate(ITERATIONS):
        right = []
        for row in range(40):
            candidates = list(samples.candidates)[samples.set[row]]
            right.append(candidates[samples.predicted[row * len(ITERATIONS) + place]] == samples.gold[row])
        assert right == first[iteration].was_right()
    assert set(labels) == set(LABELS)


def test_results_without_samples_are_counted(grid: Path) -> None:
    sorted((grid / FOLDER).iterdir())[0].unlink()
    samples, missing = of_runs.samples_of(read_jobs([grid]))
    assert missing == 1
    assert len(samples) == 480
    assert "1 results have no samples, and their inputs are not listed." in page_of(grid).about_samples


def test_a_run_without_samples_says_how_to_keep_them(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "run", seeds(THREE)))
    assert page.samples is None
    assert page.about_samples == ["These runs have no samples; deepthink run --samples keeps every input's scores."]


def test_a_damaged_file_of_samples_is_named(grid: Path) -> None:
    damaged = sorted((grid / FOLDER).iterdir())[0]
    damaged.write_bytes(b"not parquet")
    with pytest.raises(InputError, match=f"{damaged.name}: not a file of samples"):
        of_runs.samples_of(read_jobs([grid]))


def test_samples_of_another_result_are_refused(grid: Path) -> None:
    jobs = read_jobs([grid])
    dev = {result.key for job in jobs for result in job.dev.values()}
    files = {path: path.stem.rpartition("-")[2] in dev for path in sorted((grid / FOLDER).iterdir())}
    test, other = (next(path for path, of_dev in files.items() if of_dev is part) for part in (False, True))
    shutil.copyfile(other, test)
    with pytest.raises(InputError, match=f"{test.name}: 20 inputs, its result has 40"):
        of_runs.samples_of(jobs)


def test_the_page_names_every_setting_with_its_values(grid: Path) -> None:
    settings = page_of(grid).settings
    assert settings["task"] == "sst2, mr"
    assert settings["iteration"] == "1, 2, 5"
    assert settings["task_sha256"] == "2 different"
    assert "quantize" not in settings
