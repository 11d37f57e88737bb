"""Rows of a run that differ in their setting are chosen with --where, or reported apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.said import Captured, json_of
from helpers.synthetic import curve, dev, seeds, write

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import Result
from deepthink_cli.report.job_results import jobs_of, read_jobs
from deepthink_cli.report.page import report_of
from deepthink_cli.report.tables import summarize


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tasks with two etas and two seeds."""
    rows: list[Result] = []
    for task in ("sst2", "mr"):
        for eta in (0.01, 0.1):
            rows += seeds([[50, 60, 70], [52, 61, 75]], task=task, eta=eta)
    return write(tmp_path / "run", rows)


def chosen(folder: Path, *where: str) -> set[tuple[str, float | None, int]]:
    return {(job.task, job.arm.eta, job.seed.number) for job in read_jobs([folder], where)}


def test_fields_are_all_fulfilled_and_values_of_one_field_are_alternatives(folder: Path) -> None:
    assert chosen(folder, "eta=0.1", "task=sst2") == {("sst2", 0.1, 0), ("sst2", 0.1, 1)}
    assert chosen(folder, "task=sst2", "task=mr", "eta=1e-2", "seed=1") == {("sst2", 0.01, 1), ("mr", 0.01, 1)}
    assert len(chosen(folder)) == 8


@pytest.mark.parametrize("value", ["none", "false", "7"])
def test_values_that_are_not_text_are_written_as_words(value: str, tmp_path: Path) -> None:
    rows = [*curve([50, 60]), *curve([50, 60], pool_size=7, balanced=False, seed=1)]
    field, number = {"none": ("order_seed", 2), "false": ("balanced", 1), "7": ("pool_size", 1)}[value]
    assert len(read_jobs([write(tmp_path / "run", rows)], [f"{field}={value}"])) == number


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["etta=0.1"], "where etta=0.1: a setting has no field 'etta'; did you mean eta?"),
        (["colour=red"], "a setting has no field 'colour'; the fields are model, model_sha256, dtype"),
        (["eta"], "where eta: write FIELD=VALUE, as in eta=0.1"),
        (["eta=0.5"], "where eta=0.5: no row has it; eta is 0.01, 0.1"),
        (["eta=much"], "where eta=much: no row has it; eta is 0.01, 0.1"),
        (["task=sst3"], "where task=sst3: no row has it; task is sst2, mr"),
    ],
)
def test_what_no_row_has_is_named_with_what_there_is(where: list[str], message: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_jobs([folder], where)
    assert message in str(caught.value)


def test_values_that_no_row_has_together_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [*curve([50, 60]), *curve([50, 60], task="mr", eta=0.1)])
    with pytest.raises(InputError, match=r"where task=sst2 where eta=0\.1: there are rows with each of these values"):
        read_jobs([folder], ["task=sst2", "eta=0.1"])


def test_the_report_and_the_plot_take_the_same_conditions(folder: Path, capsys: Captured) -> None:
    where = ["--where", "task=sst2", "--where", "eta=0.1"]
    (row,) = json_of(capsys, "report", folder, *where, "--json")["rows"]
    assert (row["task"], row["eta"], row["seeds"]) == ("sst2", 0.1, 2)
    assert json_of(capsys, "plot", folder, *where, "--json")["panels"] == ["sst2"]
    assert run(["plot", str(folder), "--where", "eta=2"]) == 2
    assert "no row has it; eta is 0.01, 0.1" in capsys.readouterr().err


def test_rows_of_several_limits_are_reported_apart() -> None:
    rows = [*seeds([[60, 70], [62, 72]]), *seeds([[50, 51], [50, 52]], limit=30), *seeds([[40, 41]], limit=60)]
    lines = summarize(jobs_of(rows))
    assert [(line.arm.limit, len(line.scores)) for line in lines] == [(30, 2), (60, 1), ("all", 2)]
    assert [heading for heading, _ in report_of("run", jobs_of(rows)).sections] == [
        "at most 30 rows",
        "at most 60 rows",
        "all rows",
    ]


def test_one_limit_is_not_named_in_a_table() -> None:
    (line,) = summarize(jobs_of(curve([50, 60], limit=30)))
    assert line.arm.limit is None


def test_dev_rows_choose_t_for_the_test_rows_of_their_own_limit() -> None:
    rows = [
        *[*curve([50, 60, 70], limit=30), *curve([50, 90, 60], part="dev", split="train", limit=30)],
        *[*curve([50, 60, 70], limit=60), *curve([50, 60, 90], part="dev", split="train", limit=60)],
    ]
    assert [(line.arm.limit, line.iterations) for line in summarize(jobs_of(rows))] == [(30, [2]), (60, [3])]


def test_dev_rows_of_a_size_of_their_own_choose_for_every_limit(tmp_path: Path) -> None:
    shared = curve([50, 90, 60], part="dev", split="train", limit=7)
    rows = [*curve([50, 60, 70], limit=30), *curve([50, 60, 70], limit=60), *shared]
    assert [(line.arm.limit, line.iterations) for line in summarize(jobs_of(rows))] == [(30, [2]), (60, [2])]
    (job,) = read_jobs([write(tmp_path / "run", rows)], ["limit=60"])
    assert (sorted(job.test), sorted(job.dev)) == ([1, 2, 3], [1, 2, 3])


def test_dev_rows_of_several_sizes_are_not_averaged() -> None:
    rows = [*curve([50, 60]), *dev([50, 60], 0, 0.01), *curve([50, 60], part="dev", split="train", limit=7)]
    with pytest.raises(InputError, match=r"sst2: its dev rows differ \(limit None and 7\) and cannot be averaged"):
        jobs_of(rows)


def test_methods_are_not_ranked_over_several_limits() -> None:
    rows = [
        one
        for limit in (30, 60)
        for technique in (None, "repeat-2")
        for one in seeds([[50, 60]] * 5, limit=limit, technique=technique)
    ]
    notes = report_of("run", jobs_of(rows)).footnotes
    assert any("several samples of the test rows; choose one with --where limit=N" in note for note in notes)
