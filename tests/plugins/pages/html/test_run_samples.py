"""What the page of a report shows of its runs: samples, settings and commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.small_evidence import ITERATIONS, LABELS, write_grid
from helpers.synthetic import THREE, seeds, write

from deepthink_cli.errors import InputError
from deepthink_cli.experiments.samples import FOLDER
from deepthink_cli.plugins.pages.of_runs import page_of_runs, run_commands
from deepthink_cli.plugins.pages.page import WebPage
from deepthink_cli.plugins.pages.run_samples import samples_of
from deepthink_cli.report.job_results import read_jobs
from deepthink_cli.report.page import report_of


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Two tasks with two seeds, two etas, three T, test and dev rows, and samples of all."""
    write_grid(tmp_path / "grid", "continued", seeds=(0, 1))
    return tmp_path / "grid"


def page_of(run: Path) -> WebPage:
    jobs = read_jobs([run])
    return page_of_runs(report_of(str(run), jobs), jobs, "deepthink report")


def test_every_input_of_every_job_is_a_row(grid: Path) -> None:
    samples, missing = samples_of(read_jobs([grid]))
    assert missing == 0
    assert len(samples) == 2 * 2 * 2 * (40 + 20)
    assert [group.method for group in samples.groups[:4]] == ["eta 0.01", "eta 0.01", "eta 0.1", "eta 0.1"]
    assert {group.part for group in samples.groups} == {"test", "dev"}
    assert {group.iterations for group in samples.groups} == {ITERATIONS}


def test_labels_and_accuracy_are_those_of_the_results(grid: Path) -> None:
    jobs = read_jobs([grid])
    samples, _ = samples_of(jobs)
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
    samples, missing = samples_of(read_jobs([grid]))
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
        samples_of(read_jobs([grid]))


def test_samples_of_another_result_are_refused(grid: Path) -> None:
    jobs = read_jobs([grid])
    dev = {result.key for job in jobs for result in job.dev.values()}
    files = {path: path.stem.rpartition("-")[2] in dev for path in sorted((grid / FOLDER).iterdir())}
    test, other = (next(path for path, of_dev in files.items() if of_dev is part) for part in (False, True))
    shutil.copyfile(other, test)
    with pytest.raises(InputError, match=f"{test.name}: 20 inputs, its result has 40"):
        samples_of(jobs)


def test_the_page_names_every_setting_with_its_values(grid: Path) -> None:
    settings = page_of(grid).settings
    assert settings["task"] == "sst2, mr"
    assert settings["iteration"] == "1, 2, 5"
    assert settings["task_sha256"] == "2 different"
    assert "quantize" not in settings


def test_the_command_names_what_the_run_crossed(grid: Path) -> None:
    assert run_commands(read_jobs([grid])) == [
        "deepthink run --task sst2 --task mr --model dir/tiny.gguf --dtype float32 --limit 40 "
        "--shots 8 --positions continued --seeds 0,1 --eta 0.01,0.1 --momentum 0 --iterations 5 "
        f"--at 1,2,5 --choose-on dev:20 -o {grid}"
    ]
